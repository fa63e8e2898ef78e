#include "server_core.h"

#include <list>
#include <random>

#include "core_call.h"

namespace tollfree {
namespace internal {
namespace {

constexpr uint32_t kUnimplemented = 12;
// Pauses between attempts to attach, in nanoseconds: the first, and the longest. Each is twice the one before.
constexpr uint64_t kPauseMin = 20'000'000;
constexpr uint64_t kPauseMax = 2'000'000'000;
// How often a server that shuts down looks whether its answers are on their way, in nanoseconds.
constexpr uint64_t kUnsentTick = 1'000'000;

std::string TextOf(tollfree_bytes bytes) { return std::string(reinterpret_cast<const char*>(bytes.data), bytes.len); }

// A gateway that the server serves.
struct Attachment {
  std::string address, group;
  std::array<uint8_t, 16> process;
  tollfree_session session{};
  uint64_t pause_ns = 0;
  bool has_been_there = false;
  bool has_failed = false;
  std::string why;
};

}  // namespace

// Everything behind the lock.
class ServerCore::State final : public EventSink, public CallOwner {
 public:
  void OnEvent(const tollfree_event& event) override {
    switch (event.kind) {
      case TOLLFREE_EVENT_ACCEPTED:
        Begin(event.session);
        return;
      case TOLLFREE_EVENT_CONNECTED:
        Begin(event.session);
        if (Attachment* of = AttachmentOf(event.session)) {
          of->has_been_there = true;
          of->pause_ns = 0;
          loop_->Changed(of);
        }
        return;
      case TOLLFREE_EVENT_NOT_CONNECTED:
      case TOLLFREE_EVENT_CLOSED:
        cores_.erase(event.session.id);
        if (Attachment* of = AttachmentOf(event.session)) AttachLater(of, TextOf(event.text));
        loop_->Changed(this);
        return;
      case TOLLFREE_EVENT_CALL:
        OnCall(event);
        return;
      case TOLLFREE_EVENT_REFUSED:
      case TOLLFREE_EVENT_NOT_ACCEPTED:
      case TOLLFREE_EVENT_DRAINING:
        return;
      default: {
        auto found = calls_.find({event.call.session.id, event.call.number});
        if (found == calls_.end()) {
          ReleaseAll(event);
          return;
        }
        Entry entry = found->second;
        entry.call->OnEvent(event);
        if (entry.method != nullptr && entry.call->is_half_closed_ && !entry.call->is_ended_) {
          found = calls_.find({event.call.session.id, event.call.number});
          if (found != calls_.end()) found->second.method = nullptr;
          Run(entry.method, entry.call);
        }
      }
    }
  }

  void OnBroken(const std::string& why) override {
    why_ = why;
    auto calls = std::move(calls_);
    calls_.clear();
    for (auto& call : calls) call.second.call->OnEnded(14, why, Payload());
  }

  void Forget(const tollfree_call& call) override {
    calls_.erase({call.session.id, call.number});
    if (IsIdle()) loop_->Changed(this);
  }

  bool IsIdle() const { return calls_.empty() && serving_count_ == 0; }

  // Whether each answer is on its way: the library keeps long ones until clients take them. Set by `LookForUnsent`.
  bool HasSentAll() const { return has_sent_all_; }

  // Looks again and again, where the loop may be used, until each answer is on its way.
  void LookForUnsent() {
    size_t unsent = 0;
    for (auto& core : cores_) {
      size_t count = 0;
      if (tollfree_session_call_count(loop_->handle(), tollfree_session{core.first}, &count) == 0) unsent += count;
    }
    has_sent_all_ = unsent == 0;
    if (has_sent_all_) return loop_->Changed(this);
    loop_->At(tollfree_now_ns() + kUnsentTick, [this] { LookForUnsent(); });
  }

  void Dial(Attachment* of) {
    std::vector<tollfree_bytes> names;
    for (const std::string& name : services_) names.push_back({reinterpret_cast<const uint8_t*>(name.data()), name.size()});
    auto* process = reinterpret_cast<const uint8_t(*)[16]>(of->process.data());
    if (tollfree_attach(loop_->handle(), tollfree_text(of->address.c_str()), tollfree_text(of->group.c_str()), names.data(), names.size(),
                        process, 0, &of->session) != 0) {
      of->session = tollfree_session{};
      AttachLater(of, tollfree_error_text());
    }
  }

  void CloseSessions(bool drains) {
    for (auto& core : cores_) {
      tollfree_session session{core.first};
      if (drains) {
        tollfree_session_drain(loop_->handle(), session);
      } else {
        tollfree_session_close(loop_->handle(), session);
      }
    }
  }

  Loop* loop_ = nullptr;
  grpc_compression_algorithm encoding_ = GRPC_COMPRESS_NONE;
  std::map<std::string, std::unique_ptr<ServerMethod>> methods_;
  std::vector<std::string> services_;
  std::list<Attachment> attachments_;
  std::vector<tollfree_listener> listeners_;
  bool is_shut_down_ = false;
  bool has_duty_ = false;
  std::string why_;

 private:
  struct Entry {
    std::shared_ptr<Call> call;
    // Until it runs.
    std::map<std::string, std::unique_ptr<ServerMethod>>::value_type* method;
  };

  void Begin(tollfree_session session) {
    tollfree_peer peer{};
    peer.size = sizeof peer;
    if (tollfree_session_peer(loop_->handle(), session, &peer) != 0) return;
    cores_[session.id] = std::make_shared<CoreCall>("shm:pid:" + std::to_string(peer.pid), &peer);
    if (is_shut_down_) tollfree_session_drain(loop_->handle(), session);
  }

  void OnCall(const tollfree_event& event) {
    Payload metadata(event.payload);
    auto core = cores_.find(event.session.id);
    if (core == cores_.end()) {
      tollfree_call_cancel(loop_->handle(), event.call, 14);
      return;
    }
    auto method = methods_.find(TextOf(event.text));
    if (method == methods_.end()) {
      MetadataBlock trailers;
      trailers.Put("grpc-message", "this server has no such method");
      tollfree_call_answer_end(loop_->handle(), event.call, kUnimplemented, trailers.bytes());
      return;
    }
    auto call = std::make_shared<Call>(loop_->shared_from_this(), this);
    call->is_server_ = true;
    call->is_live_ = true;
    call->id_ = event.call;
    call->deadline_ns_ = event.deadline_ns;
    call->headers_ = std::move(metadata);
    call->has_headers_ = true;
    bool runs_now = method->second->reads_stream();
    calls_[{event.call.session.id, event.call.number}] = Entry{call, runs_now ? nullptr : &*method};
    if (runs_now) Run(&*method, call);
  }

  void Run(std::map<std::string, std::unique_ptr<ServerMethod>>::value_type* method, std::shared_ptr<Call> call) {
    auto core = cores_.find(call->id_.session.id);
    if (core == cores_.end()) return;
    serving_count_++;
    std::shared_ptr<void> token(nullptr, [this, loop = call->loop_](void*) {
      Lock lock = loop->Hold();
      serving_count_--;
      if (IsIdle()) loop->Changed(this);
    });
    ServerCall made{std::move(call), core->second, method->first.c_str(), std::move(token), encoding_};
    loop_->Post([method, made = std::move(made)]() mutable { method->second->Run(std::move(made)); }, method->second->is_slow());
  }

  Attachment* AttachmentOf(tollfree_session session) {
    for (Attachment& each : attachments_) {
      if (each.session.id == session.id) return &each;
    }
    return nullptr;
  }

  void AttachLater(Attachment* of, const std::string& why) {
    of->session = tollfree_session{};
    of->why = why;
    of->has_failed = true;
    loop_->Changed(of);
    if (is_shut_down_) return;
    of->pause_ns = std::min(std::max(kPauseMin, of->pause_ns * 2), kPauseMax);
    loop_->At(tollfree_now_ns() + of->pause_ns, [this, of] {
      if (!is_shut_down_ && of->session.id == 0) Dial(of);
    });
  }

  std::map<std::pair<uint64_t, uint64_t>, Entry> calls_;
  std::map<uint64_t, std::shared_ptr<CoreCall>> cores_;
  // Handlers and reactors that are not done.
  size_t serving_count_ = 0;
  bool has_sent_all_ = false;
};

ServerCore::ServerCore(const ServerOptions& options) : state_(std::make_shared<State>()) {
  loop_ = std::shared_ptr<Loop>(new Loop(state_.get(), options.thread_max), [state = state_](Loop* loop) { delete loop; });
  state_->loop_ = loop_.get();
  state_->encoding_ = options.compression_algorithm;
  tollfree_config config{};
  config.size = sizeof config;
  config.wait = static_cast<uint32_t>(options.wait);
  config.peers = options.users.empty() ? TOLLFREE_PEERS_SAME_USER : TOLLFREE_PEERS_USERS;
  config.users = options.users.data();
  config.user_count = options.users.size();
  config.message_len_max = options.message_len_max;
  config.stream_count = options.call_max;
  config.agent = tollfree_text(options.agent.c_str());
  if (options.pool != nullptr) config.pool = options.pool->handle();
  std::string error = loop_->Open(config);
  Lock lock = loop_->Hold();
  state_->why_ = error;
}

ServerCore::~ServerCore() { Shutdown(std::chrono::nanoseconds(0)); }

void ServerCore::AddService(const std::string& name) {
  Lock lock = loop_->Hold();
  state_->services_.push_back(name);
}

void ServerCore::AddMethod(const char* path, std::unique_ptr<ServerMethod> method) {
  Lock lock = loop_->Hold();
  state_->methods_[path] = std::move(method);
}

std::vector<std::string> ServerCore::services() {
  Lock lock = loop_->Hold();
  return state_->services_;
}

grpc::Status ServerCore::Listen(const std::string& address) {
  Lock lock = loop_->Hold();
  if (!state_->why_.empty()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, state_->why_);
  if (state_->is_shut_down_) return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the server was shut down");
  struct Listening {
    bool is_done = false;
    std::string error;
  };
  auto listening = std::make_shared<Listening>();
  loop_->Do(lock, [state = state_.get(), listening, address] {
    tollfree_listener listener{};
    if (tollfree_listen(state->loop_->handle(), tollfree_text(address.c_str()), &listener) != 0) {
      listening->error = tollfree_error_text();
    } else {
      state->listeners_.push_back(listener);
    }
    listening->is_done = true;
    state->loop_->Changed(listening.get());
  });
  if (!loop_->Await(lock, listening.get(), [&] { return listening->is_done; }, kNoEnd)) listening->error = state_->why_;
  if (!listening->error.empty()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, listening->error);
  if (!std::exchange(state_->has_duty_, true)) loop_->AddDuty();
  return grpc::Status::OK;
}

grpc::Status ServerCore::Attach(const std::string& address, const std::string& group) {
  Lock lock = loop_->Hold();
  if (!state_->why_.empty()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, state_->why_);
  state_->attachments_.emplace_back();
  Attachment* made = &state_->attachments_.back();
  made->address = address;
  made->group = group;
  std::random_device random;
  for (uint8_t& byte : made->process) byte = static_cast<uint8_t>(random());
  if (!std::exchange(state_->has_duty_, true)) loop_->AddDuty();
  loop_->Do(lock, [this, made] { state_->Dial(made); });
  loop_->Await(lock, made, [made] { return made->has_been_there || made->has_failed; }, kNoEnd);
  if (made->has_been_there) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not attached yet, and tried again: " + made->why);
}

void ServerCore::Shutdown(std::chrono::nanoseconds grace) {
  {
    Lock lock = loop_->Hold();
    if (!std::exchange(state_->is_shut_down_, true)) {
      loop_->Do(lock, [state = state_.get()] {
        for (tollfree_listener listener : state->listeners_) tollfree_unlisten(state->loop_->handle(), listener);
        state->CloseSessions(true);
      });
      uint64_t until_ns = tollfree_now_ns() + static_cast<uint64_t>(std::max<int64_t>(0, grace.count()));
      auto is_idle = [state = state_.get()] { return state->IsIdle(); };
      if (loop_->Await(lock, state_.get(), is_idle, until_ns)) {
        loop_->Do(lock, [state = state_.get()] { state->LookForUnsent(); });
        loop_->Await(lock, state_.get(), [state = state_.get()] { return state->HasSentAll(); }, until_ns);
      } else {
        loop_->Do(lock, [state = state_.get()] { state->CloseSessions(false); });
        // Handlers see that their calls are cancelled; who runs on is waited for.
        loop_->Await(lock, state_.get(), is_idle, kNoEnd);
      }
      loop_->Changed(&state_->is_shut_down_);
    }
  }
  loop_->Close();
}

void ServerCore::Wait() {
  Lock lock = loop_->Hold();
  loop_->Await(lock, &state_->is_shut_down_, [state = state_.get()] { return state->is_shut_down_; }, kNoEnd);
}

}  // namespace internal

Server::Server(const ServerOptions& options) : core_(std::make_unique<internal::ServerCore>(options)) {}
Server::~Server() = default;
grpc::Status Server::Listen(const std::string& address) { return core_->Listen(address); }
grpc::Status Server::Attach(const std::string& address, const std::string& group) { return core_->Attach(address, group); }
void Server::Shutdown(std::chrono::nanoseconds grace) { core_->Shutdown(grace); }
void Server::Wait() { core_->Wait(); }
void Server::AddService(const std::string& name) { core_->AddService(name); }
void Server::AddMethod(const char* path, std::unique_ptr<internal::ServerMethod> method) { core_->AddMethod(path, std::move(method)); }
std::vector<std::string> Server::services() const { return core_->services(); }

}  // namespace tollfree
