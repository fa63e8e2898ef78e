// Calls of generated clients, blocking. Not for programs.
#ifndef TOLLFREE_INTERNAL_CLIENT_CALLS_H
#define TOLLFREE_INTERNAL_CLIENT_CALLS_H

#include <grpcpp/support/sync_stream.h>
#include <tollfree/channel.h>
#include <tollfree/internal/client_link.h>
#include <tollfree/internal/codec.h>

#include <memory>

namespace tollfree {
namespace internal {

// How a call ends that can't send its message.
grpc::Status Unsendable(Call* call, const grpc::Status& status);
// The status of a call that brought a message, or should have.
grpc::Status WithoutMessage(const grpc::Status& status);

template <class Request, class Response>
grpc::Status UnaryCall(const Channel& channel, const char* path, grpc::ClientContext* context, const Request& request, Response* response) {
  Payload message;
  grpc::Status encoded = Encode(request, false, &message);
  if (!encoded.ok()) return encoded;
  ClientLink link;
  link.Start(channel.connection(), path, context, &message, true, true);
  Message answer;
  bool has_answer = link.call().Take(&answer);
  grpc::Status status = link.StoreEnd();
  if (!status.ok()) return status;
  return has_answer ? Decode(&answer, response) : WithoutMessage(status);
}

// What the streams of a client have in common.
class StreamLink {
 public:
  ~StreamLink() {
    // As gRPC does it when the stream's context ends: nobody waits for the rest.
    if (!is_finished_) link_.call().Cancel(static_cast<uint32_t>(grpc::StatusCode::CANCELLED), "CANCELLED");
  }

  ClientLink& link() { return link_; }
  Call& call() { return link_.call(); }

  void WaitForInitialMetadata() {
    if (call().AwaitHeaders()) link_.StoreHeaders();
  }

  template <class M>
  bool Write(const M& message, const grpc::WriteOptions& options) {
    Payload payload;
    grpc::Status status = Encode(message, false, &payload);
    if (!status.ok()) {
      Unsendable(&call(), status);
      return false;
    }
    return call().Write(std::move(payload), options.is_last_message());
  }

  template <class M>
  bool Read(M* message) {
    Message read;
    if (!call().Read(&read)) return false;
    WaitForInitialMetadata();
    grpc::Status status = Decode(&read, message);
    if (!status.ok()) call().Cancel(static_cast<uint32_t>(status.error_code()), status.error_message());
    return status.ok();
  }

  grpc::Status Finish() {
    call().AwaitEnd();
    is_finished_ = true;
    return link_.StoreEnd();
  }

 private:
  ClientLink link_;
  bool is_finished_ = false;
};

template <class Response>
class Reader final : public grpc::ClientReaderInterface<Response> {
 public:
  template <class Request>
  Reader(const Channel& channel, const char* path, grpc::ClientContext* context, const Request& request) {
    Payload message;
    grpc::Status status = Encode(request, true, &message);
    stream_.link().Start(channel.connection(), path, context, &message, true, false);
    if (!status.ok()) Unsendable(&stream_.call(), status);
  }

  bool NextMessageSize(uint32_t* size) override { return *size = UINT32_MAX, true; }
  bool Read(Response* message) override { return stream_.Read(message); }
  void WaitForInitialMetadata() override { stream_.WaitForInitialMetadata(); }
  grpc::Status Finish() override { return stream_.Finish(); }

 private:
  StreamLink stream_;
};

template <class Request, class Response>
class Writer final : public grpc::ClientWriterInterface<Request> {
 public:
  Writer(const Channel& channel, const char* path, grpc::ClientContext* context, Response* response) : response_(response) {
    stream_.link().Start(channel.connection(), path, context, nullptr, false, false);
  }

  using grpc::internal::WriterInterface<Request>::Write;
  bool Write(const Request& message, grpc::WriteOptions options) override { return stream_.Write(message, options); }
  bool WritesDone() override {
    stream_.call().FinishWriting();
    return !stream_.call().IsEnded();
  }
  grpc::Status Finish() override {
    Message answer;
    bool has_answer = stream_.call().Read(&answer);
    grpc::Status status = stream_.Finish();
    if (!status.ok()) return status;
    return has_answer ? Decode(&answer, response_) : WithoutMessage(status);
  }

 private:
  StreamLink stream_;
  Response* const response_;
};

template <class Request, class Response>
class ReaderWriter final : public grpc::ClientReaderWriterInterface<Request, Response> {
 public:
  ReaderWriter(const Channel& channel, const char* path, grpc::ClientContext* context) {
    stream_.link().Start(channel.connection(), path, context, nullptr, false, false);
  }

  using grpc::internal::WriterInterface<Request>::Write;
  bool Write(const Request& message, grpc::WriteOptions options) override { return stream_.Write(message, options); }
  bool WritesDone() override {
    stream_.call().FinishWriting();
    return !stream_.call().IsEnded();
  }
  bool NextMessageSize(uint32_t* size) override { return *size = UINT32_MAX, true; }
  bool Read(Response* message) override { return stream_.Read(message); }
  void WaitForInitialMetadata() override { stream_.WaitForInitialMetadata(); }
  grpc::Status Finish() override { return stream_.Finish(); }

 private:
  StreamLink stream_;
};

}  // namespace internal
}  // namespace tollfree

#endif
