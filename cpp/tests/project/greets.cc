#include "greeter.tollfree.h"

int main(int, char** argv) {
  auto stub = greeter::v1::GreeterTollfree::NewStub(tollfree::CreateChannel(argv[1]));
  grpc::ClientContext context;
  greeter::v1::HelloRequest request;
  greeter::v1::HelloReply reply;
  request.set_name("project");
  return stub->SayHello(&context, request, &reply).ok() && reply.text() == "Hello project" ? 0 : 1;
}
