// Serves greetings at an address until its input ends. The service class is gRPC's own: it would run on gRPC's server as it is.
//
//   greeter_server shm:///run/user/1000/greeter.sock
#include <tollfree/health.h>
#include <tollfree/reflection.h>

#include <iostream>

#include "greeter.tollfree.h"

using greeter::v1::Greeter;
using greeter::v1::GreeterTollfree;
using greeter::v1::HelloReply;
using greeter::v1::HelloRequest;

class Greetings final : public Greeter::Service {
  grpc::Status SayHello(grpc::ServerContext*, const HelloRequest* request, HelloReply* reply) override {
    if (request->name().empty()) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "who is to be greeted? name is empty");
    reply->set_text("Hello " + request->name());
    return grpc::Status::OK;
  }

  grpc::Status SayHellos(grpc::ServerContext*, grpc::ServerReaderWriter<HelloReply, HelloRequest>* stream) override {
    HelloRequest request;
    while (stream->Read(&request)) {
      HelloReply reply;
      reply.set_text("Hello " + request.name());
      if (!stream->Write(reply)) break;
    }
    return grpc::Status::OK;
  }
};

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: greeter_server ADDRESS\n";
    return 2;
  }
  Greetings greetings;
  tollfree::Server server;
  auto health = tollfree::AddHealth(&server);
  tollfree::AddReflection(&server);
  grpc::Status status = GreeterTollfree::Register(&server, &greetings);
  if (status.ok()) status = server.Listen(argv[1]);
  if (!status.ok()) {
    std::cerr << status.error_message() << "\n";
    return 1;
  }
  std::cout << "listening" << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  health->Shutdown();
  server.Shutdown(std::chrono::seconds(5));
}
