// The service in C++: passes calls on to another server, with one trace through all.
//
//   relay ADDRESS [NEXT_ADDRESS]
//
// It serves until its input ends. Debian has no package of OpenTelemetry's library for C++: spans.h is in its place here.
#include <tollfree/channel.h>
#include <tollfree/client_context.h>
#include <tollfree/server.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "relay.tollfree.h"
#include "spans.h"

using tollfree::relay::v1::PassReply;
using tollfree::relay::v1::PassRequest;
using tollfree::relay::v1::Relay;
using tollfree::relay::v1::RelayTollfree;

constexpr char kMethod[] = "tollfree.relay.v1.Relay/Pass";

class Passing final : public Relay::Service {
 public:
  Passing(Exporter* exporter, std::unique_ptr<Relay::StubInterface> next) : exporter_(exporter), next_(std::move(next)) {}

 private:
  grpc::Status Pass(grpc::ServerContext* context, const PassRequest* request, PassReply* reply) override {
    auto header = context->client_metadata().find("traceparent");
    std::string traceparent;
    if (header != context->client_metadata().end()) traceparent.assign(header->second.data(), header->second.size());
    CallSpan server(exporter_, otlp::Span::KIND_SERVER, kMethod, SpanContext::FromTraceparent(traceparent));
    PassReply behind;
    grpc::Status status = next_ ? PassOn(*context, server.context(), *request, &behind) : grpc::Status::OK;
    if (status.ok()) {
      const char* name = std::getenv("OTEL_SERVICE_NAME");
      reply->add_passed(std::string(name ? name : "relay") + ", process " + std::to_string(getpid()));
      for (const std::string& passed : behind.passed()) reply->add_passed(passed);
    }
    server.End(status);
    return status;
  }

  grpc::Status PassOn(const grpc::ServerContext& from, const SpanContext& parent, const PassRequest& request, PassReply* reply) {
    CallSpan client(exporter_, otlp::Span::KIND_CLIENT, kMethod, parent);
    auto context = tollfree::ClientContextFrom(from);
    context->AddMetadata("traceparent", client.context().Traceparent());
    grpc::Status status = next_->Pass(context.get(), request, reply);
    client.End(status);
    return status;
  }

  Exporter* const exporter_;
  const std::unique_ptr<Relay::StubInterface> next_;
};

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: relay ADDRESS [NEXT_ADDRESS]\n";
    return 2;
  }
  Exporter exporter;
  std::unique_ptr<Relay::StubInterface> next;
  if (argc == 3) next = RelayTollfree::NewStub(tollfree::CreateChannel(argv[2]));
  Passing service(&exporter, std::move(next));
  tollfree::Server server;
  grpc::Status status = RelayTollfree::Register(&server, &service);
  if (status.ok()) status = server.Listen(argv[1]);
  if (status.ok()) {
    std::cout << "ready" << std::endl;
    while (std::cin.get() != std::char_traits<char>::eof()) {
    }
    server.Shutdown(std::chrono::seconds(5));
    status = exporter.Flush();
  }
  if (!status.ok()) std::cerr << "relay: " << status.error_message() << "\n";
  return status.ok() ? 0 : 1;
}
