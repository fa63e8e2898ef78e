// Greets one name, and then several by a stream.
//
//   greeter_client shm:///run/user/1000/greeter.sock NAME...
#include <iostream>

#include "greeter.tollfree.h"

using greeter::v1::Greeter;
using greeter::v1::GreeterTollfree;
using greeter::v1::HelloReply;
using greeter::v1::HelloRequest;

// Code that takes gRPC's stub interface needs no change.
static grpc::Status Greet(Greeter::StubInterface* stub, int count, char** names) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  HelloRequest request;
  HelloReply reply;
  request.set_name(names[0]);
  grpc::Status status = stub->SayHello(&context, request, &reply);
  if (!status.ok()) return status;
  std::cout << reply.text() << "\n";

  grpc::ClientContext of_stream;
  auto stream = stub->SayHellos(&of_stream);
  for (int at = 0; at < count; at++) {
    request.set_name(names[at]);
    if (!stream->Write(request) || !stream->Read(&reply)) break;
    std::cout << reply.text() << "\n";
  }
  stream->WritesDone();
  return stream->Finish();
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: greeter_client ADDRESS NAME...\n";
    return 2;
  }
  auto stub = GreeterTollfree::NewStub(tollfree::CreateChannel(argv[1]));
  grpc::Status status = Greet(stub.get(), argc - 2, argv + 2);
  if (!status.ok()) std::cerr << "status " << status.error_code() << ": " << status.error_message() << "\n";
  return status.ok() ? 0 : 1;
}
