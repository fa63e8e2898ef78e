// The API of completion queues, which Tollfree does not serve. Not for programs.
//
// A generated client does not compile with it. Through the stock StubInterface it does: each operation is done at once then, and the call's
// status is UNIMPLEMENTED.
#ifndef TOLLFREE_INTERNAL_REFUSED_QUEUES_H
#define TOLLFREE_INTERNAL_REFUSED_QUEUES_H

#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>
#include <tollfree/channel.h>

namespace tollfree {
namespace internal {

grpc::Status RefusedStatus();

// Operations of a call that is none: their tags come at once.
class RefusedCall {
 public:
  RefusedCall(const Channel& channel, grpc::CompletionQueue* queue);
  ~RefusedCall();
  RefusedCall(const RefusedCall&) = delete;
  RefusedCall& operator=(const RefusedCall&) = delete;

  void Done(void* tag, bool ok);

 private:
  grpc_call* const call_;
};

// gRPC leaves it to an arena to end such an object: this one ends with its last operation.
template <class Response>
class RefusedUnary final : public grpc::ClientAsyncResponseReaderInterface<Response> {
 public:
  RefusedUnary(const Channel& channel, grpc::CompletionQueue* queue) : call_(channel, queue) {}
  void StartCall() override {}
  void ReadInitialMetadata(void* tag) override { call_.Done(tag, false); }
  void Finish(Response*, grpc::Status* status, void* tag) override {
    *status = RefusedStatus();
    call_.Done(tag, true);
    delete this;
  }

 private:
  RefusedCall call_;
};

// The operations of all streams.
template <class Base>
class RefusedStream : public Base {
 public:
  RefusedStream(const Channel& channel, grpc::CompletionQueue* queue) : call_(channel, queue) {}
  void StartCall(void* tag) override { call_.Done(tag, false); }
  void ReadInitialMetadata(void* tag) override { call_.Done(tag, false); }
  void Finish(grpc::Status* status, void* tag) override {
    *status = RefusedStatus();
    call_.Done(tag, true);
  }

 protected:
  RefusedCall call_;
};

template <class Response>
class RefusedReader final : public RefusedStream<grpc::ClientAsyncReaderInterface<Response>> {
 public:
  using RefusedStream<grpc::ClientAsyncReaderInterface<Response>>::RefusedStream;
  void Read(Response*, void* tag) override { this->call_.Done(tag, false); }
};

template <class Request>
class RefusedWriter final : public RefusedStream<grpc::ClientAsyncWriterInterface<Request>> {
 public:
  using RefusedStream<grpc::ClientAsyncWriterInterface<Request>>::RefusedStream;
  void Write(const Request&, void* tag) override { this->call_.Done(tag, false); }
  void Write(const Request&, grpc::WriteOptions, void* tag) override { this->call_.Done(tag, false); }
  void WritesDone(void* tag) override { this->call_.Done(tag, false); }
};

template <class Request, class Response>
class RefusedReaderWriter final : public RefusedStream<grpc::ClientAsyncReaderWriterInterface<Request, Response>> {
 public:
  using RefusedStream<grpc::ClientAsyncReaderWriterInterface<Request, Response>>::RefusedStream;
  void Read(Response*, void* tag) override { this->call_.Done(tag, false); }
  void Write(const Request&, void* tag) override { this->call_.Done(tag, false); }
  void Write(const Request&, grpc::WriteOptions, void* tag) override { this->call_.Done(tag, false); }
  void WritesDone(void* tag) override { this->call_.Done(tag, false); }
};

// Begun, where the caller wants that.
template <class Call>
Call* Begun(Call* call, void* tag) {
  call->StartCall(tag);
  return call;
}

}  // namespace internal
}  // namespace tollfree

#endif
