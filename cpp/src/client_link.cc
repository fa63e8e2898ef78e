#include <tollfree/internal/client_link.h>

#include <grpcpp/support/client_interceptor.h>

#include <tollfree/internal/compression.h>

#include <list>
#include <mutex>

#include "context_access.h"
#include "core_call.h"
#include "credentials.h"

namespace tollfree {
namespace internal {
namespace {

// gRPC's own request for an encoding, which is never sent.
constexpr char kEncodingRequest[] = "grpc-internal-encoding-request";
constexpr char kStatusDetails[] = "grpc-status-details-bin";

}  // namespace

// What a context keeps for its call: it ends the call if the context is cancelled, and what came stays until the context ends.
class ContextState final : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_CANCEL)) {
      std::shared_ptr<Call> call;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        call = call_;
      }
      if (call != nullptr) call->Cancel(static_cast<uint32_t>(grpc::StatusCode::CANCELLED), "CANCELLED");
      return;
    }
    methods->Proceed();
  }

  void Keep(std::shared_ptr<Call> call) {
    std::lock_guard<std::mutex> lock(mutex_);
    call_ = std::move(call);
  }

  // A text that stays.
  grpc::string_ref Store(std::string text) {
    texts_.push_back(std::move(text));
    return grpc::string_ref(texts_.back().data(), texts_.back().size());
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Call> call_;
  std::list<std::string> texts_;
};

namespace {

thread_local ContextState* made_state = nullptr;

class StateFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    made_state = new ContextState;
    return made_state;
  }
};

const ClientAccess::Creators& Factories() {
  static const ClientAccess::Creators* factories = [] {
    auto* made = new ClientAccess::Creators;
    made->push_back(std::make_unique<StateFactory>());
    return made;
  }();
  return *factories;
}

uint64_t DeadlineOf(const grpc::ClientContext& context) {
  gpr_timespec deadline = gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_REALTIME);
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return 0;
  gpr_timespec left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_REALTIME));
  uint64_t now_ns = tollfree_now_ns();
  if (left.tv_sec < 0) return now_ns > 0 ? now_ns : 1;
  // Beyond what the clock counts is no deadline.
  if (left.tv_sec > 1'000'000'000) return 0;
  return now_ns + static_cast<uint64_t>(left.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(left.tv_nsec);
}

void StorePairs(const Payload& block, ContextState* state, std::multimap<grpc::string_ref, grpc::string_ref>* map, std::string* details) {
  ForEachPair(block.get().bytes, [&](std::string name, std::string value) {
    if (name == "grpc-message" || name == "grpc-status") return;
    if (details != nullptr && name == kStatusDetails) *details = value;
    grpc::string_ref key = state->Store(std::move(name));
    map->emplace(key, state->Store(std::move(value)));
  });
}

}  // namespace

ClientLink::ClientLink() = default;
ClientLink::~ClientLink() = default;

grpc::Status ClientLink::Check(const char* path, const std::multimap<std::string, std::string>& pairs, CallStart* start, MetadataBlock* metadata) const {
  if (ClientAccess::has_parent(*context_)) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "a context of ClientContext::FromServerContext takes its deadline from gRPC's core, which Tollfree's calls do not pass: "
                        "make it by tollfree::ClientContextFrom");
  }
  for (const auto& pair : pairs) {
    if (pair.first == kEncodingRequest) continue;
    if (!metadata->Put(pair.first, pair.second)) return grpc::Status(grpc::StatusCode::INTERNAL, metadata->error());
  }
  std::shared_ptr<grpc::CallCredentials> credentials = context_->credentials();
  if (credentials != nullptr) {
    grpc::Status status = PutCredentials(*credentials, connection_->address(), path, *connection_->core()->identity(), metadata);
    if (!status.ok()) return status;
  }
  grpc_compression_algorithm encoding = connection_->encoding();
  bool is_said = RequestedEncoding(pairs, &encoding);
  if (const char* name = NameOf(encoding)) {
    metadata->Put("grpc-encoding", name);
    call_->set_encoding(encoding);
  }
  if (is_said || encoding != GRPC_COMPRESS_NONE) metadata->Put("grpc-accept-encoding", kAcceptedEncodings);
  start->path = path;
  start->metadata = metadata;
  start->deadline_ns = DeadlineOf(*context_);
  if (ClientAccess::says_waits(*context_)) start->waits_for_ready = ClientAccess::waits_for_ready(*context_);
  return grpc::Status::OK;
}

void ClientLink::Start(const std::shared_ptr<Connection>& connection, const char* path, grpc::ClientContext* context, const Payload* message,
                       bool is_last, bool waits) {
  connection_ = connection;
  context_ = context;
  call_ = connection->NewCall();
  bool is_cancelled = false;
  if (!ClientAccess::Link(context, connection->core()->call(), path, Factories(), &is_cancelled)) {
    call_->Cancel(static_cast<uint32_t>(grpc::StatusCode::FAILED_PRECONDITION), "a ClientContext is for one call: make another");
    return;
  }
  state_ = std::exchange(made_state, nullptr);
  state_->Keep(call_);
  ClientAccess::set_identity(context, connection->core()->identity());
  if (is_cancelled) {
    call_->Cancel(static_cast<uint32_t>(grpc::StatusCode::CANCELLED), "CANCELLED");
    return;
  }
  Begin(path, ClientAccess::metadata(*context), message, is_last, waits);
}

void ClientLink::Begin(const char* path, const std::multimap<std::string, std::string>& pairs, const Payload* message, bool is_last, bool waits) {
  CallStart start;
  MetadataBlock metadata;
  grpc::Status status = Check(path, pairs, &start, &metadata);
  if (!status.ok()) {
    call_->Cancel(static_cast<uint32_t>(status.error_code()), status.error_message());
    return;
  }
  Payload packed;
  if (message != nullptr && call_->compresses() && message->Share(&packed)) {
    call_->Pack(&packed);
    message = &packed;
  }
  start.message = message;
  start.is_last = is_last;
  connection_->Begin(call_, start, waits);
}

void ClientLink::StartStock(const std::shared_ptr<Connection>& connection, const char* path, grpc::ClientContext* context,
                            const std::multimap<std::string, std::string>& metadata, const Payload* message, bool is_last) {
  connection_ = connection;
  context_ = context;
  call_ = connection->NewCall();
  own_state_ = std::make_unique<ContextState>();
  state_ = own_state_.get();
  Begin(path, metadata, message, is_last, false);
}

void ClientLink::StoreStockHeaders(std::multimap<grpc::string_ref, grpc::string_ref>* to) {
  if (has_stored_headers_ || to == nullptr) return;
  has_stored_headers_ = true;
  StorePairs(call_->headers(), state_, to, nullptr);
}

grpc::Status ClientLink::StoreStockEnd(std::multimap<grpc::string_ref, grpc::string_ref>* to) {
  const Outcome& outcome = call_->outcome();
  std::string details;
  if (to != nullptr) StorePairs(outcome.trailers, state_, to, &details);
  auto code = static_cast<grpc::StatusCode>(outcome.code);
  return code == grpc::StatusCode::OK ? grpc::Status::OK : grpc::Status(code, outcome.text, details);
}

void ClientLink::StoreHeaders() {
  if (has_stored_headers_ || state_ == nullptr) return;
  has_stored_headers_ = true;
  StorePairs(call_->headers(), state_, ClientAccess::headers(context_), nullptr);
}

grpc::Status ClientLink::StoreEnd() {
  const Outcome& outcome = call_->outcome();
  auto code = static_cast<grpc::StatusCode>(outcome.code);
  if (state_ == nullptr) return grpc::Status(code, outcome.text);
  StoreHeaders();
  std::string details;
  StorePairs(outcome.trailers, state_, ClientAccess::trailers(context_), &details);
  state_->Keep(nullptr);
  if (code == grpc::StatusCode::OK) return grpc::Status::OK;
  ClientAccess::set_error(context_, outcome.text);
  return grpc::Status(code, outcome.text, details);
}

}  // namespace internal
}  // namespace tollfree
