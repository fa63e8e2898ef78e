#include <tollfree/stock_channel.h>

#include <grpcpp/create_channel.h>
#include <grpcpp/impl/call_op_set.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_interceptor.h>
#include <tollfree/internal/client_link.h>
#include <tollfree/internal/codec.h>

#include <mutex>
#include <vector>

#include "loop.h"

namespace tollfree {
namespace internal {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// So long the calling thread looks for what it waits for, before it leaves that to the crew: gRPC does not say whether it may block.
constexpr uint64_t kInlineNs = 100'000;

// Members that gRPC keeps from interceptors: which operations a batch has says what type its message is of. The language lets an explicit
// instantiation name them.
template <class Key, typename Key::Type kMember>
struct Reach {
  friend typename Key::Type Member(Key) { return kMember; }
};

struct OperationsKey {
  using Type = grpc::internal::CallOpSetInterface* grpc::internal::InterceptorBatchMethodsImpl::*;
  friend Type Member(OperationsKey);
};
template struct Reach<OperationsKey, &grpc::internal::InterceptorBatchMethodsImpl::ops_>;

struct DecoderKey {
  using Type = std::unique_ptr<grpc::internal::DeserializeFunc> grpc::internal::CallOpGenericRecvMessage::*;
  friend Type Member(DecoderKey);
};
template struct Reach<DecoderKey, &grpc::internal::CallOpGenericRecvMessage::deserialize_>;

grpc::internal::CallOpSetInterface* OperationsOf(InterceptorBatchMethods* methods) {
  return static_cast<grpc::internal::InterceptorBatchMethodsImpl*>(methods)->*Member(OperationsKey());
}

// A message into what gRPC's operation has for it.
grpc::Status DecodeInto(InterceptorBatchMethods* methods, Message* message) {
  grpc::internal::CallOpSetInterface* set = OperationsOf(methods);
  if (dynamic_cast<grpc::internal::CallOpRecvMessage<grpc::ByteBuffer>*>(set) != nullptr) {
    return Decode(message, static_cast<grpc::ByteBuffer*>(methods->GetRecvMessage()));
  }
  if (auto* generic = dynamic_cast<grpc::internal::CallOpGenericRecvMessage*>(set)) {
    grpc::ByteBuffer bytes;
    grpc::Status status = Decode(message, &bytes);
    return status.ok() ? (generic->*Member(DecoderKey()))->Deserialize(&bytes) : status;
  }
  // Messages of protobuf begin with their base class.
  return Decode(message, static_cast<google::protobuf::MessageLite*>(methods->GetRecvMessage()));
}

class StockCall final : public grpc::experimental::Interceptor {
 public:
  StockCall(std::shared_ptr<Connection> connection, grpc::experimental::ClientRpcInfo* info)
      : connection_(std::move(connection)), info_(info) {}

  ~StockCall() override {
    if (link_ != nullptr) link_->call().Cancel(static_cast<uint32_t>(grpc::StatusCode::CANCELLED), "CANCELLED");
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    auto has = [methods](InterceptionHookPoints point) { return methods->QueryInterceptionHookPoint(point); };
    if (has(InterceptionHookPoints::PRE_SEND_CANCEL)) {
      Cancel();
    } else if (has(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      Begin(methods);
      methods->Hijack();
    } else if (has(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      Send(methods);
    } else if (has(InterceptionHookPoints::PRE_SEND_CLOSE)) {
      link_->call().FinishWriting();
      methods->Proceed();
    } else if (has(InterceptionHookPoints::PRE_RECV_INITIAL_METADATA)) {
      AfterHeaders(methods);
    } else if (has(InterceptionHookPoints::PRE_RECV_MESSAGE)) {
      AfterMessage(methods);
    } else if (has(InterceptionHookPoints::PRE_RECV_STATUS)) {
      AfterEnd(methods);
    } else {
      methods->Proceed();
    }
  }

 private:
  // Any thread, also before the call begins.
  void Cancel() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_cancelled_ = true;
    ClientLink* link = link_.get();
    lock.unlock();
    if (link != nullptr) link->call().Cancel(static_cast<uint32_t>(grpc::StatusCode::CANCELLED), "CANCELLED");
  }

  void Begin(InterceptorBatchMethods* methods) {
    bool has_message = methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE);
    bool is_last = methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CLOSE);
    Payload message;
    grpc::Status status = has_message ? Encode(*methods->GetSerializedSendMessage(), true, &message) : grpc::Status::OK;
    auto link = std::make_unique<ClientLink>();
    link->StartStock(connection_, info_->method(), info_->client_context(), *methods->GetSendInitialMetadata(), has_message ? &message : nullptr,
                     is_last);
    std::unique_lock<std::mutex> lock(mutex_);
    link_ = std::move(link);
    bool is_cancelled = is_cancelled_;
    lock.unlock();
    if (is_cancelled) Cancel();
    if (!status.ok()) link_->call().Cancel(static_cast<uint32_t>(status.error_code()), status.error_message());
  }

  void Send(InterceptorBatchMethods* methods) {
    bool is_last = methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CLOSE);
    Payload message;
    grpc::Status status = Encode(*methods->GetSerializedSendMessage(), true, &message);
    if (!status.ok()) link_->call().Cancel(static_cast<uint32_t>(status.error_code()), status.error_message());
    link_->call().Submit(std::move(message), is_last);
    Once(methods, &Call::HasSent, [this, methods] {
      if (!link_->call().HasGoneOut()) methods->FailHijackedSendMessage();
      methods->Proceed();
    });
  }

  void AfterHeaders(InterceptorBatchMethods* methods) {
    Once(methods, &Call::HasHeadersOrEnd, [this, methods] {
      link_->StoreStockHeaders(methods->GetRecvInitialMetadata());
      if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_RECV_MESSAGE)) {
        AfterMessage(methods);
      } else if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_RECV_STATUS)) {
        AfterEnd(methods);
      } else {
        methods->Proceed();
      }
    });
  }

  void AfterMessage(InterceptorBatchMethods* methods) {
    Once(methods, &Call::HasMessageOrEnd, [this, methods] {
      Message message;
      bool ok = link_->call().Take(&message);
      if (ok) {
        grpc::Status status = DecodeInto(methods, &message);
        if (!status.ok()) link_->call().Cancel(static_cast<uint32_t>(status.error_code()), status.error_message());
        ok = status.ok();
      }
      if (!ok) methods->FailHijackedRecvMessage();
      if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_RECV_STATUS)) {
        AfterEnd(methods);
      } else {
        methods->Proceed();
      }
    });
  }

  void AfterEnd(InterceptorBatchMethods* methods) {
    Once(methods, &Call::HasDrained, [this, methods] {
      grpc::Status status = link_->StoreStockEnd(methods->GetRecvTrailingMetadata());
      *methods->GetRecvStatus() = status;
      methods->Proceed();
    });
  }

  // Goes on when something is so: here if it soon is, else in a thread of the crew. Batches of reactors never wait here.
  void Once(InterceptorBatchMethods* methods, bool (Call::*is_ready)() const, std::function<void()> then) {
    grpc::internal::CallOpSetInterface* set = OperationsOf(methods);
    bool may_wait = set->core_cq_tag() == static_cast<void*>(set);
    if (link_->call().AwaitFor(is_ready, may_wait ? kInlineNs : 0)) {
      then();
    } else {
      link_->call().WhenReady(is_ready, std::move(then));
    }
  }

  const std::shared_ptr<Connection> connection_;
  grpc::experimental::ClientRpcInfo* const info_;
  std::mutex mutex_;
  bool is_cancelled_ = false;
  std::unique_ptr<ClientLink> link_;
};

class StockFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit StockFactory(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo* info) override {
    return new StockCall(connection_, info);
  }

 private:
  const std::shared_ptr<Connection> connection_;
};

}  // namespace
}  // namespace internal

std::shared_ptr<grpc::Channel> CreateStockChannel(const std::string& address, const ChannelOptions& options) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<internal::StockFactory>(internal::Connection::Make(address, options)));
  // Nothing is there, so that who has gRPC connect finds it so.
  return grpc::experimental::CreateCustomChannelWithInterceptors("unix:/nonexistent/tollfree", grpc::InsecureChannelCredentials(),
                                                                 grpc::ChannelArguments(), std::move(factories));
}

}  // namespace tollfree
