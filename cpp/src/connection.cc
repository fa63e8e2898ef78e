// A channel's calls, and a channel of the C library that they are made in.
#include <tollfree/internal/connection.h>

#include <algorithm>
#include <unordered_map>

#include "core_call.h"
#include "loop.h"

namespace tollfree {
namespace internal {
namespace {

constexpr uint32_t kInternal = 13;
constexpr uint32_t kUnavailable = 14;

tollfree_bytes BytesOf(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

std::string Joined(const std::vector<Target>& targets) {
  std::string all;
  for (const Target& target : targets) all += (all.empty() ? "" : ",") + target.address;
  return all;
}

tollfree_start StartOf(const CallStart& from) {
  tollfree_start start{};
  start.size = sizeof start;
  start.path = tollfree_text(from.path);
  if (from.metadata != nullptr) start.metadata = from.metadata->bytes();
  start.deadline_ns = from.deadline_ns;
  if (from.message != nullptr) {
    start.message = from.message->get();
    start.flags |= TOLLFREE_FLAG_HAS_MESSAGE | from.message->flags();
  }
  if (from.is_last) start.flags |= TOLLFREE_FLAG_LAST;
  if (from.waits_for_ready.has_value()) start.flags |= *from.waits_for_ready ? TOLLFREE_FLAG_WAITS : TOLLFREE_FLAG_WAITS_NOT;
  return start;
}

}  // namespace

// Everything behind the lock.
class Connection::State : public EventSink, public CallOwner {
 public:
  explicit State(std::string address) : address_(std::move(address)) {}

  void OnEvent(const tollfree_event& event) override {
    if (event.kind == TOLLFREE_EVENT_CHANNEL) {
      fares_ = event.code;
      loop_->Changed(this);
      return;
    }
    auto found = calls_.find(event.call.number);
    if (found == calls_.end()) {
      ReleaseAll(event);
      return;
    }
    std::shared_ptr<Call> call = found->second;
    call->OnEvent(event);
  }

  void OnBroken(const std::string& why) override {
    if (why_.empty()) why_ = "calls to " + address_ + " can't be made: " + why;
    auto calls = std::move(calls_);
    calls_.clear();
    for (auto& call : calls) call.second->OnEnded(kUnavailable, why_, Payload());
    loop_->Changed(this);
  }

  void Forget(const tollfree_call& call) override { calls_.erase(call.number); }

  // The rest is with the lock held, where the loop may be used.

  void Open(const std::vector<Target>& targets, const ChannelOptions& options) {
    std::vector<tollfree_server> servers;
    for (const Target& target : targets) servers.push_back({BytesOf(target.address), target.weight, target.priority});
    tollfree_channel_config config{};
    config.size = sizeof config;
    config.servers = servers.data();
    config.server_count = servers.size();
    config.policy = static_cast<uint32_t>(options.balance);
    config.service_config = BytesOf(options.service_config);
    if (tollfree_channel_open(loop_->handle(), &config, &channel_) != 0) OnBroken(tollfree_error_text());
  }

  void Begin(const std::shared_ptr<Call>& call, const tollfree_start& start) {
    if (call->is_ended_) return;
    if (!why_.empty()) return call->OnEnded(kUnavailable, why_, Payload());
    if (tollfree_channel_call(loop_->handle(), channel_, &start, &call->id_) != 0) {
      return call->OnEnded(kInternal, std::string("the call can't begin: ") + tollfree_error_text(), Payload());
    }
    call->is_live_ = true;
    calls_.emplace(call->id_.number, call);
  }

  void Connect() {
    if (why_.empty()) tollfree_channel_connect(loop_->handle(), channel_);
  }

  uint32_t fares() const { return why_.empty() ? fares_ : TOLLFREE_CHANNEL_FAILING; }

  const std::string address_;
  Loop* loop_ = nullptr;

 private:
  std::unordered_map<uint64_t, std::shared_ptr<Call>> calls_;
  tollfree_channel channel_{};
  uint32_t fares_ = TOLLFREE_CHANNEL_IDLE;
  // Why no call can be made any more.
  std::string why_;
};

std::shared_ptr<Connection> Connection::Make(const std::vector<Target>& targets, const ChannelOptions& options) {
  std::shared_ptr<Connection> made(new Connection);
  std::shared_ptr<State> state = std::make_shared<State>(Joined(targets));
  made->state_ = state;
  // The loop's threads outlive a channel that ends in a reaction.
  made->loop_ = std::shared_ptr<Loop>(new Loop(state.get(), 1), [state](Loop* loop) { delete loop; });
  state->loop_ = made->loop_.get();
  made->core_ = std::make_shared<CoreCall>(state->address_);
  made->encoding_ = options.compression_algorithm;
  tollfree_config config{};
  config.size = sizeof config;
  config.wait = static_cast<uint32_t>(options.wait);
  config.message_len_max = options.message_len_max;
  config.agent = BytesOf(options.agent);
  if (options.pool != nullptr) config.pool = options.pool->handle();
  std::string error = made->loop_->Open(config);
  Lock lock = made->loop_->Hold();
  if (error.empty()) {
    made->loop_->Do(lock, [state, targets, options] { state->Open(targets, options); });
  } else {
    state->OnBroken(error);
  }
  return made;
}

std::shared_ptr<Connection> Connection::Make(const std::string& addresses, const ChannelOptions& options) {
  std::vector<Target> targets;
  for (size_t from = 0; from <= addresses.size();) {
    size_t to = std::min(addresses.find(',', from), addresses.size());
    targets.emplace_back(addresses.substr(from, to - from));
    from = to + 1;
  }
  return Make(targets, options);
}

Connection::~Connection() { loop_->Close(); }

const std::string& Connection::address() const { return state_->address_; }

std::shared_ptr<Call> Connection::NewCall() { return std::make_shared<Call>(loop_, state_.get()); }

void Connection::Begin(const std::shared_ptr<Call>& call, const CallStart& start, bool waits) {
  State* state = state_.get();
  tollfree_start begins = StartOf(start);
  Lock lock = loop_->Hold();
  call->deadline_ns_ = start.deadline_ns;
  call->is_finished_ = start.is_last;
  auto has_ended = [of = call.get()] { return of->HasEnded(); };
  if (loop_->Take(lock)) {
    state->Begin(call, begins);
    if (waits) {
      loop_->DriveTaken(lock, call.get(), has_ended, kNoEnd);
    } else {
      loop_->GiveBack(lock);
    }
    return;
  }
  if (waits) {
    // What it begins with stays as long as this thread waits: a call that has ended meanwhile does not begin.
    loop_->Do(lock, [state, call, begins] { state->Begin(call, begins); });
    loop_->Await(lock, call.get(), has_ended, kNoEnd);
    return;
  }
  auto metadata = std::string(reinterpret_cast<const char*>(begins.metadata.data), begins.metadata.len);
  auto message = std::make_shared<Payload>();
  if (start.message != nullptr && !start.message->Share(message.get())) {
    return call->OnEnded(kInternal, "there is no memory for the message", Payload());
  }
  loop_->Do(lock, [state, call, begins, metadata = std::move(metadata), message]() mutable {
    begins.metadata = BytesOf(metadata);
    begins.message = message->get();
    state->Begin(call, begins);
  });
}

uint32_t Connection::StateNow(bool connects) {
  Lock lock = loop_->Hold();
  if (connects) loop_->Do(lock, [state = state_] { state->Connect(); });
  return state_->fares();
}

bool Connection::AwaitOther(uint32_t than, uint64_t until_ns) {
  Lock lock = loop_->Hold();
  return loop_->Await(lock, state_.get(), [state = state_.get(), than] { return state->fares() != than; }, until_ns);
}

}  // namespace internal

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

grpc_connectivity_state StateOf(uint32_t fares) {
  switch (fares) {
    case TOLLFREE_CHANNEL_CONNECTING:
      return GRPC_CHANNEL_CONNECTING;
    case TOLLFREE_CHANNEL_READY:
      return GRPC_CHANNEL_READY;
    case TOLLFREE_CHANNEL_FAILING:
      return GRPC_CHANNEL_TRANSIENT_FAILURE;
    default:
      return GRPC_CHANNEL_IDLE;
  }
}

uint32_t NumberOf(grpc_connectivity_state state) {
  switch (state) {
    case GRPC_CHANNEL_CONNECTING:
      return TOLLFREE_CHANNEL_CONNECTING;
    case GRPC_CHANNEL_READY:
      return TOLLFREE_CHANNEL_READY;
    case GRPC_CHANNEL_TRANSIENT_FAILURE:
    case GRPC_CHANNEL_SHUTDOWN:
      return TOLLFREE_CHANNEL_FAILING;
    default:
      return TOLLFREE_CHANNEL_IDLE;
  }
}

uint64_t TimeOf(std::chrono::system_clock::time_point deadline) {
  auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - std::chrono::system_clock::now()).count();
  // Beyond what the clock counts is no deadline.
  if (left > static_cast<int64_t>(kSecondNs * 1'000'000'000)) return UINT64_MAX;
  return tollfree_now_ns() + static_cast<uint64_t>(std::max<int64_t>(left, 0));
}

}  // namespace

const std::string& Channel::address() const { return connection_->address(); }

grpc_connectivity_state Channel::GetState(bool try_to_connect) { return StateOf(connection_->StateNow(try_to_connect)); }

bool Channel::WaitForStateChange(grpc_connectivity_state last_observed, std::chrono::system_clock::time_point deadline) {
  return connection_->AwaitOther(NumberOf(last_observed), TimeOf(deadline));
}

bool Channel::WaitForConnected(std::chrono::system_clock::time_point deadline) {
  for (uint64_t until_ns = TimeOf(deadline);;) {
    uint32_t fares = connection_->StateNow(true);
    if (fares == TOLLFREE_CHANNEL_READY) return true;
    if (!connection_->AwaitOther(fares, until_ns)) return false;
  }
}

std::shared_ptr<Channel> CreateChannel(const std::vector<Target>& targets, const ChannelOptions& options) {
  return std::make_shared<Channel>(internal::Connection::Make(targets, options));
}

std::shared_ptr<Channel> CreateChannel(const std::string& addresses, const ChannelOptions& options) {
  return std::make_shared<Channel>(internal::Connection::Make(addresses, options));
}

}  // namespace tollfree
