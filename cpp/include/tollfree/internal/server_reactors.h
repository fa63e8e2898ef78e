// Methods of services whose handlers return reactors, as gRPC's callback services have them. Not for programs.
//
// An object lives until its reactor's OnDone. gRPC's own base counts what is missing: the handler's return, the end that the program gives,
// the end of the call, and operations under way.
#ifndef TOLLFREE_INTERNAL_SERVER_REACTORS_H
#define TOLLFREE_INTERNAL_SERVER_REACTORS_H

#include <grpcpp/support/server_callback.h>
#include <tollfree/internal/server_methods.h>

#include <memory>
#include <utility>

namespace tollfree {
namespace internal {

// What all of them do. `Base` is gRPC's interface, `Reactor` the program's.
template <class Base, class Reactor>
class ReactorServing : public Base {
 public:
  explicit ReactorServing(ServerCall call)
      : call_(call.call), link_(std::move(call), &context_, [this] {
          // With the lock held: the rest is the crew's.
          call_->PostLocked([this] {
            this->MaybeCallOnCancel();
            this->MaybeDone(true);
          });
        }) {}

  void Finish(grpc::Status status) override { End(status, nullptr); }

  void SendInitialMetadata() override {
    this->Ref();
    bool ok = link_.SendHeaders();
    call_->Post([this, ok] {
      reactor_->OnSendInitialMetadataDone(ok);
      this->MaybeDone(true);
    });
  }

 protected:
  grpc::CallbackServerContext* context() { return &context_; }
  Call& call() { return *call_; }

  // What a handler has returned.
  void Bind(Reactor* reactor) {
    if (reactor == nullptr) {
      link_.End(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), nullptr);
      delete this;
      return;
    }
    reactor_ = reactor;
    this->BindReactor(reactor);
    this->MaybeCallOnCancel(reactor);
    this->MaybeDone(true);
  }

  void End(const grpc::Status& status, const Payload* message) {
    bool was_under_way = link_.End(status, message);
    // Not here: the program may be in a function of the reactor that ends.
    call_->Post([this, was_under_way] {
      if (was_under_way) this->MaybeDone(true);
      this->MaybeDone(true);
    });
  }

  template <class Response>
  void EndWith(const grpc::Status& status, const Response& response) {
    Payload message;
    grpc::Status encoded = status.ok() ? Encode(response, false, &message) : status;
    End(encoded, encoded.ok() ? &message : nullptr);
  }

  template <class Request>
  void StartRead(Request* request) {
    this->Ref();
    call_->WhenReadable([this, request] {
      Message message;
      bool ok = call_->Take(&message) && Decode(&message, request).ok();
      reactor_->OnReadDone(ok);
      this->MaybeDone(true);
    });
  }

  template <class Response>
  void StartWrite(const Response* response) {
    this->Ref();
    Payload message;
    grpc::Status encoded = Encode(*response, true, &message);
    bool goes_on = link_.SendHeaders() && encoded.ok();
    auto then = [this](bool ok) {
      reactor_->OnWriteDone(ok);
      this->MaybeDone(true);
    };
    if (!goes_on) {
      call_->Post([then] { then(false); });
    } else {
      call_->WhenSent(std::move(message), false, then);
    }
  }

  template <class Response>
  void StartWriteAndFinish(const Response* response, const grpc::Status& status) {
    Payload message;
    grpc::Status encoded = Encode(*response, true, &message);
    // Behind the message, whatever the status is.
    if (encoded.ok() && link_.SendHeaders() && !status.ok()) call_->WhenSent(std::move(message), false, [](bool) {});
    End(encoded.ok() ? status : encoded, encoded.ok() ? &message : nullptr);
  }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {
    Reactor* reactor = reactor_;
    std::shared_ptr<Call> call = call_;
    reactor->OnDone();
    delete this;
  }

  const std::shared_ptr<Call> call_;
  grpc::CallbackServerContext context_;
  ServerLink link_;
  Reactor* reactor_ = nullptr;
};

// Calls a handler. Null where it throws.
template <class Reactor, class Function>
Reactor* ReactorOf(Function function) {
#if GRPC_ALLOW_EXCEPTIONS
  try {
    return function();
  } catch (...) {
    return nullptr;
  }
#else
  return function();
#endif
}

template <class Request, class Response>
class UnaryServing final : public ReactorServing<grpc::ServerCallbackUnary, grpc::ServerUnaryReactor> {
 public:
  using ReactorServing::ReactorServing;

  template <class Handler>
  void Run(const Handler& handler) {
    grpc::Status status = TakeRequest(&call(), &request_);
    Bind(status.ok() ? ReactorOf<grpc::ServerUnaryReactor>([&] { return handler(context(), &request_, &response_); }) : Failed(status));
  }
  void Finish(grpc::Status status) override { EndWith(status, response_); }

 private:
  grpc::ServerUnaryReactor* Failed(const grpc::Status& status) {
    auto* reactor = context()->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  Request request_;
  Response response_;
};

template <class Request, class Response>
class ReadServing final : public ReactorServing<grpc::ServerCallbackReader<Request>, grpc::ServerReadReactor<Request>> {
 public:
  using ReactorServing<grpc::ServerCallbackReader<Request>, grpc::ServerReadReactor<Request>>::ReactorServing;

  template <class Handler>
  void Run(const Handler& handler) {
    this->Bind(ReactorOf<grpc::ServerReadReactor<Request>>([&] { return handler(this->context(), &response_); }));
  }
  void Finish(grpc::Status status) override { this->EndWith(status, response_); }
  void Read(Request* request) override { this->StartRead(request); }

 private:
  Response response_;
};

template <class Request, class Response>
class WriteServing final : public ReactorServing<grpc::ServerCallbackWriter<Response>, grpc::ServerWriteReactor<Response>> {
 public:
  using ReactorServing<grpc::ServerCallbackWriter<Response>, grpc::ServerWriteReactor<Response>>::ReactorServing;

  template <class Handler>
  void Run(const Handler& handler) {
    grpc::Status status = TakeRequest(&this->call(), &request_);
    if (!status.ok()) return this->Bind(new Failed(status));
    this->Bind(ReactorOf<grpc::ServerWriteReactor<Response>>([&] { return handler(this->context(), &request_); }));
  }
  void Write(const Response* response, grpc::WriteOptions) override { this->StartWrite(response); }
  void WriteAndFinish(const Response* response, grpc::WriteOptions, grpc::Status status) override {
    this->StartWriteAndFinish(response, status);
  }

 private:
  // The reactor of a call whose request could not be read.
  class Failed final : public grpc::ServerWriteReactor<Response> {
   public:
    explicit Failed(const grpc::Status& status) { this->Finish(status); }
    void OnDone() override { delete this; }
  };

  Request request_;
};

template <class Request, class Response>
class BidiServing final : public ReactorServing<grpc::ServerCallbackReaderWriter<Request, Response>, grpc::ServerBidiReactor<Request, Response>> {
 public:
  using ReactorServing<grpc::ServerCallbackReaderWriter<Request, Response>, grpc::ServerBidiReactor<Request, Response>>::ReactorServing;

  template <class Handler>
  void Run(const Handler& handler) {
    this->Bind(ReactorOf<grpc::ServerBidiReactor<Request, Response>>([&] { return handler(this->context()); }));
  }
  void Read(Request* request) override { this->StartRead(request); }
  void Write(const Response* response, grpc::WriteOptions) override { this->StartWrite(response); }
  void WriteAndFinish(const Response* response, grpc::WriteOptions, grpc::Status status) override {
    this->StartWriteAndFinish(response, status);
  }
};

template <class Serving, class Handler>
class ReactorMethod final : public ServerMethod {
 public:
  ReactorMethod(bool reads_stream, Handler handler) : ServerMethod(reads_stream), handler_(std::move(handler)) {}
  void Run(ServerCall call) override { (new Serving(std::move(call)))->Run(handler_); }

 private:
  const Handler handler_;
};

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeUnaryReactor(Handler handler) {
  return std::make_unique<ReactorMethod<UnaryServing<Request, Response>, Handler>>(false, std::move(handler));
}

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeReadReactor(Handler handler) {
  return std::make_unique<ReactorMethod<ReadServing<Request, Response>, Handler>>(true, std::move(handler));
}

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeWriteReactor(Handler handler) {
  return std::make_unique<ReactorMethod<WriteServing<Request, Response>, Handler>>(false, std::move(handler));
}

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeBidiReactor(Handler handler) {
  return std::make_unique<ReactorMethod<BidiServing<Request, Response>, Handler>>(true, std::move(handler));
}

}  // namespace internal
}  // namespace tollfree

#endif
