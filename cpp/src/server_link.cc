#include <tollfree/internal/server_link.h>

#include <grpcpp/support/server_interceptor.h>

#include <tollfree/internal/compression.h>

#include <list>

#include "context_access.h"
#include "core_call.h"

namespace tollfree {
namespace internal {
namespace {

constexpr char kEncodingRequest[] = "grpc-internal-encoding-request";
constexpr char kStatusDetails[] = "grpc-status-details-bin";

// What a context keeps for its call.
class ServerContextState final : public grpc::experimental::Interceptor {
 public:
  explicit ServerContextState(std::shared_ptr<Call> call) : call_(std::move(call)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_CANCEL)) {
      call_->Cancel(static_cast<uint32_t>(grpc::StatusCode::CANCELLED), "Cancelled on the server side");
      return;
    }
    methods->Proceed();
  }

  grpc::string_ref Store(std::string text) {
    texts_.push_back(std::move(text));
    return grpc::string_ref(texts_.back().data(), texts_.back().size());
  }

 private:
  const std::shared_ptr<Call> call_;
  std::list<std::string> texts_;
};

struct Making {
  std::shared_ptr<Call> call;
  ServerContextState* made;
};

thread_local Making* making = nullptr;

class StateFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo*) override {
    return making->made = new ServerContextState(making->call);
  }
};

const ServerAccess::Creators& Factories() {
  static const ServerAccess::Creators* factories = [] {
    auto* made = new ServerAccess::Creators;
    made->push_back(std::make_unique<StateFactory>());
    return made;
  }();
  return *factories;
}

gpr_timespec DeadlineOf(uint64_t deadline_ns) {
  if (deadline_ns == 0) return gpr_inf_future(GPR_CLOCK_REALTIME);
  auto left_ns = static_cast<int64_t>(deadline_ns - tollfree_now_ns());
  return gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_nanos(left_ns, GPR_TIMESPAN));
}

// As gRPC sends a status message: what is no printable ASCII, and the percent sign, is escaped.
std::string Percent(const std::string& text) {
  static const char kHex[] = "0123456789ABCDEF";
  std::string escaped;
  for (char each : text) {
    auto byte = static_cast<uint8_t>(each);
    if (byte >= 0x20 && byte <= 0x7e && byte != '%') {
      escaped += each;
    } else {
      escaped += '%';
      escaped += kHex[byte >> 4];
      escaped += kHex[byte & 15];
    }
  }
  return escaped;
}

void PutAll(const std::multimap<std::string, std::string>& from, MetadataBlock* block, std::string* error) {
  for (const auto& pair : from) {
    if (pair.first != kEncodingRequest && !block->Put(pair.first, pair.second)) *error = block->error();
  }
}

}  // namespace

void ServerMethod::Learn(uint64_t took_ns) {
  uint64_t average_ns = average_ns_.load(std::memory_order_relaxed);
  average_ns_.store(average_ns - average_ns / 8 + took_ns / 8, std::memory_order_relaxed);
}

ServerLink::ServerLink(ServerCall call, grpc::ServerContextBase* context, std::function<void()> on_cancel)
    : call_(std::move(call)), context_(context) {
  Making makes{call_.call, nullptr};
  making = &makes;
  ServerAccess::Link(context, call_.core->call(), call_.path, Factories());
  making = nullptr;
  ServerAccess::set_identity(context, call_.core->identity());
  ServerAccess::set_deadline(context, DeadlineOf(call_.call->deadline_ns()));
  if (call_.call->headers().size() > 0) {
    auto* map = ServerAccess::client_metadata(context);
    ForEachPair(call_.call->headers().get().bytes, [&](std::string name, std::string value) {
      grpc::string_ref key = makes.made->Store(std::move(name));
      map->emplace(key, makes.made->Store(std::move(value)));
    });
  }
  call_.call->SetOnCancel([context, on_cancel = std::move(on_cancel)] {
    ServerAccess::Cancel(context);
    if (on_cancel != nullptr) on_cancel();
  });
}

ServerLink::~ServerLink() { call_.call->SetOnCancel(nullptr); }

grpc::internal::Call ServerLink::Hooked(grpc::internal::CallHook* hook) const {
  return grpc::internal::Call(call_.core->call(), hook, call_.core->queue());
}

void ServerLink::ChooseEncoding(MetadataBlock* headers) {
  grpc_compression_algorithm encoding = call_.encoding;
  RequestedEncoding(ServerAccess::headers(*context_), &encoding);
  // A client that does not say what it takes gets nothing compressed.
  if (encoding == GRPC_COMPRESS_NONE || !Accepts(call().headers().get().bytes, encoding)) return;
  headers->Put("grpc-encoding", NameOf(encoding));
  call().set_encoding(encoding);
}

bool ServerLink::SendHeaders() {
  if (has_sent_headers_) return !call().IsEnded();
  has_sent_headers_ = true;
  MetadataBlock headers;
  std::string error;
  PutAll(ServerAccess::headers(*context_), &headers, &error);
  ChooseEncoding(&headers);
  if (!error.empty()) {
    End(grpc::Status(grpc::StatusCode::INTERNAL, error), nullptr);
    return false;
  }
  return call().SendHeaders(headers);
}

bool ServerLink::End(const grpc::Status& status, const Payload* message) {
  MetadataBlock headers, trailers;
  std::string error;
  bool sends_headers = !std::exchange(has_sent_headers_, true) && (!ServerAccess::headers(*context_).empty() || message != nullptr);
  if (sends_headers) {
    PutAll(ServerAccess::headers(*context_), &headers, &error);
    ChooseEncoding(&headers);
  }
  PutAll(ServerAccess::trailers(*context_), &trailers, &error);
  grpc::StatusCode code = error.empty() ? status.error_code() : grpc::StatusCode::INTERNAL;
  const std::string& text = error.empty() ? status.error_message() : error;
  if (code != grpc::StatusCode::OK) {
    if (!text.empty()) trailers.Put("grpc-message", Percent(text));
    if (!status.error_details().empty()) trailers.Put(kStatusDetails, status.error_details());
    message = nullptr;
  }
  Payload packed;
  if (message != nullptr && call().compresses() && message->Share(&packed)) {
    call().Pack(&packed);
    message = &packed;
  }
  // Handlers may return any number.
  auto number = static_cast<uint32_t>(code);
  return call().End(number <= 16 ? number : 2, trailers, message, sends_headers ? &headers : nullptr);
}

}  // namespace internal
}  // namespace tollfree
