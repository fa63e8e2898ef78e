// gRPC's test service (https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md), without the cases that ask whether a message came compressed, which gRPC does not tell handlers.
#ifndef TOLLFREE_TESTS_INTEROP_SERVICE_H
#define TOLLFREE_TESTS_INTEROP_SERVICE_H

#include <string>
#include <thread>

#include "grpc/testing/test.tollfree.h"

namespace tollfree {
namespace tests {

using grpc::testing::Empty;
using grpc::testing::SimpleRequest;
using grpc::testing::SimpleResponse;
using grpc::testing::StreamingInputCallRequest;
using grpc::testing::StreamingInputCallResponse;
using grpc::testing::StreamingOutputCallRequest;
using grpc::testing::StreamingOutputCallResponse;
using grpc::testing::TestService;
using grpc::testing::TestServiceTollfree;
using grpc::testing::UnimplementedServiceTollfree;

constexpr char kEchoInitial[] = "x-grpc-test-echo-initial";
constexpr char kEchoTrailing[] = "x-grpc-test-echo-trailing-bin";

class InteropService final : public TestService::Service {
 public:
  grpc::Status EmptyCall(grpc::ServerContext* context, const Empty*, Empty*) override {
    Echo(context);
    return grpc::Status::OK;
  }
  grpc::Status UnaryCall(grpc::ServerContext* context, const SimpleRequest* request, SimpleResponse* response) override {
    Echo(context);
    if (request->response_status().code() != 0) return StatusOf(request->response_status());
    if (request->response_compressed().value()) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    if (request->fill_server_id()) response->set_server_id("tollfree-cpp");
    return Fill(request->response_size(), response->mutable_payload());
  }
  grpc::Status CacheableUnaryCall(grpc::ServerContext*, const SimpleRequest*, SimpleResponse* response) override {
    response->mutable_payload()->set_body(std::to_string(tollfree_now_ns()));
    return grpc::Status::OK;
  }
  grpc::Status StreamingOutputCall(grpc::ServerContext* context, const StreamingOutputCallRequest* request,
                                   grpc::ServerWriter<StreamingOutputCallResponse>* writer) override {
    Echo(context);
    return Answer(*request, writer);
  }
  grpc::Status StreamingInputCall(grpc::ServerContext* context, grpc::ServerReader<StreamingInputCallRequest>* reader,
                                  StreamingInputCallResponse* response) override {
    Echo(context);
    StreamingInputCallRequest request;
    int sum = 0;
    while (reader->Read(&request)) sum += static_cast<int>(request.payload().body().size());
    response->set_aggregated_payload_size(sum);
    return grpc::Status::OK;
  }
  grpc::Status FullDuplexCall(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<StreamingOutputCallResponse, StreamingOutputCallRequest>* stream) override {
    Echo(context);
    StreamingOutputCallRequest request;
    while (stream->Read(&request)) {
      grpc::Status status = Answer(request, stream);
      if (!status.ok()) return status;
    }
    return grpc::Status::OK;
  }
  grpc::Status HalfDuplexCall(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<StreamingOutputCallResponse, StreamingOutputCallRequest>* stream) override {
    Echo(context);
    std::vector<StreamingOutputCallRequest> requests(1);
    while (stream->Read(&requests.back())) requests.emplace_back();
    requests.pop_back();
    for (const auto& request : requests) {
      grpc::Status status = Answer(request, stream);
      if (!status.ok()) return status;
    }
    return grpc::Status::OK;
  }

 private:
  static void Echo(grpc::ServerContext* context) {
    for (const auto& pair : context->client_metadata()) {
      std::string name(pair.first.data(), pair.first.size()), value(pair.second.data(), pair.second.size());
      if (name == kEchoInitial) context->AddInitialMetadata(name, value);
      if (name == kEchoTrailing) context->AddTrailingMetadata(name, value);
    }
  }

  template <class EchoStatus>
  static grpc::Status StatusOf(const EchoStatus& status) {
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
  }

  static grpc::Status Fill(int size, grpc::testing::Payload* payload) {
    if (size < 0 || size > 16 << 20) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "payloads have 0 to 16 MiB");
    payload->set_body(std::string(static_cast<size_t>(size), '\0'));
    return grpc::Status::OK;
  }

  template <class Writer>
  static grpc::Status Answer(const StreamingOutputCallRequest& request, Writer* writer) {
    if (request.response_status().code() != 0) return StatusOf(request.response_status());
    for (const auto& wanted : request.response_parameters()) {
      if (wanted.interval_us() > 0) std::this_thread::sleep_for(std::chrono::microseconds(wanted.interval_us()));
      StreamingOutputCallResponse response;
      grpc::Status status = Fill(wanted.size(), response.mutable_payload());
      if (!status.ok()) return status;
      if (!writer->Write(response)) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }
};

}  // namespace tests
}  // namespace tollfree

#endif
