// Methods of services whose handlers block, as gRPC's sync services have them. Not for programs.
//
// A unary handler is called directly. Streams are gRPC's own classes, which are final: their operations come to a hook, that does them over
// the session, and lets gRPC find them done.
#ifndef TOLLFREE_INTERNAL_SERVER_METHODS_H
#define TOLLFREE_INTERNAL_SERVER_METHODS_H

#include <grpcpp/impl/call_hook.h>
#include <grpcpp/impl/call_op_set.h>
#include <grpcpp/support/method_handler.h>
#include <tollfree/internal/codec.h>
#include <tollfree/internal/server_link.h>

#include <functional>
#include <memory>
#include <new>
#include <type_traits>

namespace tollfree {
namespace internal {

grpc::Status WithoutRequest();

// The request of a method that takes one.
template <class Request>
grpc::Status TakeRequest(Call* call, Request* request) {
  Message message;
  if (!call->Take(&message)) return WithoutRequest();
  return Decode(&message, request);
}

template <class Request, class Response, class Handler>
class UnaryMethod final : public ServerMethod {
 public:
  explicit UnaryMethod(Handler handler) : ServerMethod(false), handler_(std::move(handler)) {}

  void Run(ServerCall call) override {
    grpc::ServerContext context;
    ServerLink link(std::move(call), &context);
    Request request;
    Response response;
    grpc::Status status = TakeRequest(&link.call(), &request);
    if (status.ok()) {
      uint64_t began_ns = tollfree_now_ns();
      status = grpc::internal::CatchingFunctionHandler([&] { return handler_(&context, &request, &response); });
      Learn(tollfree_now_ns() - began_ns);
    }
    Payload message;
    if (status.ok()) status = Encode(response, false, &message);
    link.End(status, status.ok() ? &message : nullptr);
  }

 private:
  const Handler handler_;
};

// Reaches what an operation of gRPC's reports to interceptors.
template <class Operation>
struct OperationAccess : Operation {
  static bool Report(grpc::internal::CallOpSetInterface* set, grpc::internal::InterceptorBatchMethodsImpl* methods) {
    auto* operation = dynamic_cast<Operation*>(set);
    if (operation != nullptr) (operation->*&OperationAccess::SetInterceptionHookPoint)(methods);
    return operation != nullptr;
  }
};

// Does the operations of a server's stream.
template <class Request, class Response>
class StreamHook final : public grpc::internal::CallHook {
 public:
  explicit StreamHook(ServerLink* link) : link_(link) {}

  void PerformOpsOnCall(grpc::internal::CallOpSetInterface* set, grpc::internal::Call* call) override {
    using grpc::experimental::InterceptionHookPoints;
    grpc::internal::InterceptorBatchMethodsImpl methods;
    methods.ClearState();
    OperationAccess<grpc::internal::CallOpSendInitialMetadata>::Report(set, &methods);
    OperationAccess<grpc::internal::CallOpSendMessage>::Report(set, &methods);
    OperationAccess<grpc::internal::CallOpServerSendStatus>::Report(set, &methods);
    bool ends = methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS);
    if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA) && !ends) link_->SendHeaders();
    Payload message;
    bool has_message = methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE);
    grpc::Status encoded;
    if (has_message) encoded = EncodeFrom(&methods, &message);
    if (ends) {
      grpc::Status status = methods.GetSendStatus();
      link_->End(encoded.ok() ? status : encoded, has_message ? &message : nullptr);
    } else if (has_message) {
      if (!encoded.ok()) link_->End(encoded, nullptr);
      if (!encoded.ok() || !link_->call().Write(std::move(message), false)) methods.FailHijackedSendMessage();
    }
    if (OperationAccess<grpc::internal::CallOpRecvMessage<Request>>::Report(set, &methods)) {
      methods.AddInterceptionHookPoint(InterceptionHookPoints::PRE_RECV_MESSAGE);
      Message read;
      bool ok = link_->call().Read(&read) && Decode(&read, static_cast<Request*>(methods.GetRecvMessage())).ok();
      if (!ok) methods.FailHijackedRecvMessage();
    }
    // gRPC takes the operations for done, by a batch of nothing.
    set->SetHijackingState();
    set->FillOps(call);
  }

 private:
  static grpc::Status EncodeFrom(grpc::internal::InterceptorBatchMethodsImpl* methods, Payload* message) {
    auto* original = static_cast<const Response*>(methods->GetSendMessage());
    if (original != nullptr) return Encode(*original, false, message);
    return Encode(*methods->GetSerializedSendMessage(), true, message);
  }

  ServerLink* const link_;
};

// A method with streams, run by gRPC's own handler of that kind. `Request` is what its reader reads.
template <class Request, class Response, class StockHandler, bool kReadsStream>
class StreamMethod final : public ServerMethod {
 public:
  explicit StreamMethod(std::unique_ptr<StockHandler> handler) : ServerMethod(kReadsStream), handler_(std::move(handler)) {}

  void Run(ServerCall call) override {
    grpc::ServerContext context;
    ServerLink link(std::move(call), &context);
    StreamHook<Request, Response> hook(&link);
    grpc::internal::Call hooked = link.Hooked(&hook);
    grpc::Status status;
    // gRPC's handler ends the request that it is passed.
    typename std::aligned_storage<sizeof(Request), alignof(Request)>::type room;
    Request* request = nullptr;
    if (!kReadsStream) {
      request = new (&room) Request;
      status = TakeRequest(&link.call(), request);
      if (!status.ok()) request->~Request();
    }
    handler_->RunHandler(grpc::internal::MethodHandler::HandlerParameter(&hooked, &context, request, status, nullptr, nullptr));
  }

 private:
  const std::unique_ptr<StockHandler> handler_;
};

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeUnary(Handler handler) {
  return std::make_unique<UnaryMethod<Request, Response, Handler>>(std::move(handler));
}

// Stock handlers take the service, which our functions have already.
struct NoService {};

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeClientStreaming(Handler handler) {
  using Stock = grpc::internal::ClientStreamingHandler<NoService, Request, Response>;
  auto stock = std::make_unique<Stock>(
      [handler](NoService*, grpc::ServerContext* context, grpc::ServerReader<Request>* reader, Response* response) {
        return handler(context, reader, response);
      },
      nullptr);
  return std::make_unique<StreamMethod<Request, Response, Stock, true>>(std::move(stock));
}

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeServerStreaming(Handler handler) {
  using Stock = grpc::internal::ServerStreamingHandler<NoService, Request, Response>;
  auto stock = std::make_unique<Stock>(
      [handler](NoService*, grpc::ServerContext* context, const Request* request, grpc::ServerWriter<Response>* writer) {
        return handler(context, request, writer);
      },
      nullptr);
  return std::make_unique<StreamMethod<Request, Response, Stock, false>>(std::move(stock));
}

template <class Request, class Response, class Handler>
std::unique_ptr<ServerMethod> MakeBidiStreaming(Handler handler) {
  using Stock = grpc::internal::BidiStreamingHandler<NoService, Request, Response>;
  auto stock = std::make_unique<Stock>(
      [handler](NoService*, grpc::ServerContext* context, grpc::ServerReaderWriter<Response, Request>* stream) { return handler(context, stream); },
      nullptr);
  return std::make_unique<StreamMethod<Request, Response, Stock, true>>(std::move(stock));
}

}  // namespace internal
}  // namespace tollfree

#endif
