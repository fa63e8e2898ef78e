// Where a channel's calls go: its one session, which begins with the first call and again when it has ended. All that connects and
// reconnects is here.
#include <tollfree/internal/connection.h>

#include <algorithm>
#include <list>
#include <map>

#include "core_call.h"
#include "loop.h"

namespace tollfree {
namespace internal {
namespace {

constexpr uint32_t kDeadlineExceeded = 4;
constexpr uint32_t kInternal = 13;
constexpr uint32_t kUnavailable = 14;
// Pauses between attempts to connect, in nanoseconds: the first, and the longest. Each is twice the one before.
constexpr uint64_t kPauseMin = 20'000'000;
constexpr uint64_t kPauseMax = 2'000'000'000;
// A call that the server has not looked at is made again so often.
constexpr int kAgainMax = 3;

std::string TextOf(tollfree_bytes bytes) { return std::string(reinterpret_cast<const char*>(bytes.data), bytes.len); }

}  // namespace

// Everything behind the lock.
class Connection::State : public EventSink, public CallOwner {
 public:
  State(std::string address) : address_(std::move(address)) {}

  void OnEvent(const tollfree_event& event) override {
    switch (event.kind) {
      case TOLLFREE_EVENT_CONNECTED:
        if (event.session.id == session_.id) Ready();
        return;
      case TOLLFREE_EVENT_NOT_CONNECTED:
        if (event.session.id == session_.id) Failed(TextOf(event.text));
        return;
      case TOLLFREE_EVENT_DRAINING:
        if (event.session.id == session_.id) Over();
        return;
      case TOLLFREE_EVENT_CLOSED:
        if (event.session.id == session_.id) Over();
        return;
      default: {
        auto found = calls_.find({event.call.session.id, event.call.number});
        if (found == calls_.end()) {
          tollfree_buffer_release(event.payload.buffer);
          return;
        }
        std::shared_ptr<Entry> entry = found->second;
        if (event.kind == TOLLFREE_EVENT_ENDED) {
          calls_.erase(found);
          if (Again(entry, event)) return;
        }
        entry->call->OnEvent(event);
      }
    }
  }

  void OnBroken(const std::string& why) override {
    is_broken_ = true;
    why_ = why;
    auto calls = std::move(calls_);
    calls_.clear();
    for (auto& [key, entry] : calls) entry->call->OnEnded(kUnavailable, Unavailable(), Payload());
    auto waiting = std::move(waiting_);
    waiting_.clear();
    for (auto& entry : waiting) entry->call->OnEnded(kUnavailable, Unavailable(), Payload());
  }

  // A call that was not begun yet, with what it needs for that.
  struct Entry {
    std::shared_ptr<Call> call;
    const char* path;
    std::string metadata;
    Payload message;
    bool has_message, is_last, waits_for_ready;
    int again = 0;
  };

  // With the lock held, where the loop may be used.
  void Begin(const std::shared_ptr<Entry>& entry) {
    Call& call = *entry->call;
    if (call.is_ended_) return;
    if (is_broken_) return call.OnEnded(kUnavailable, Unavailable(), Payload());
    if (!is_ready_) {
      // A server that listens answers, however often there was none: only calls that wait for one pause.
      if (session_.id == 0 && (!entry->waits_for_ready || tollfree_now_ns() >= next_ns_)) Dial();
      bool fails = session_.id == 0 && !entry->waits_for_ready;
      if (fails) return call.OnEnded(kUnavailable, Unavailable(), Payload());
      waiting_.push_back(entry);
      if (session_.id == 0) DialLater();
      if (call.deadline_ns_ != 0) loop_->At(call.deadline_ns_, [weak = std::weak_ptr<Call>(entry->call)] { Late(weak.lock()); });
      return;
    }
    tollfree_start start{};
    start.size = sizeof start;
    start.path = tollfree_text(entry->path);
    start.metadata = {reinterpret_cast<const uint8_t*>(entry->metadata.data()), entry->metadata.size()};
    start.deadline_ns = call.deadline_ns_;
    start.message = entry->message.get();
    start.flags = (entry->has_message ? TOLLFREE_FLAG_HAS_MESSAGE : 0u) | (entry->is_last ? TOLLFREE_FLAG_LAST : 0u);
    int number = tollfree_call_start(loop_->handle(), session_, &start, &call.id_);
    if (number == TOLLFREE_ERROR_CALL_NO_SESSION) {
      Over();
      return Begin(entry);
    }
    if (number != 0) return call.OnEnded(kInternal, std::string("the call can't begin: ") + tollfree_error_text(), Payload());
    call.is_live_ = true;
    // Writes that wait for the beginning are sent now.
    call.is_unsent_ = !call.outbox_.empty();
    calls_[{call.id_.session.id, call.id_.number}] = entry;
    while (!call.outbox_.empty() && call.is_live_) {
      Payload message = std::move(call.outbox_.front());
      call.outbox_.pop_front();
      call.Send(message, false);
    }
    if (call.is_finished_ && !entry->is_last && call.is_live_) tollfree_call_finish(loop_->handle(), call.id_);
    call.Changed();
  }

  void Forget(const tollfree_call& call) override { calls_.erase({call.session.id, call.number}); }

  std::string Unavailable() const {
    return "the server at " + address_ + " can't be called: " + (why_.empty() ? "it can't be reached" : why_);
  }

  std::string address_;
  Loop* loop_ = nullptr;

 private:
  // The library ends calls that have begun.
  static void Late(const std::shared_ptr<Call>& call) {
    if (call == nullptr || call->is_live_ || call->is_ended_) return;
    call->OnEnded(kDeadlineExceeded, "the deadline has passed before there was a session with the server", Payload());
  }

  void Dial() {
    if (tollfree_connect(loop_->handle(), tollfree_text(address_.c_str()), &session_) != 0) {
      session_ = tollfree_session{};
      Failed(tollfree_error_text());
    }
  }

  void Ready() {
    is_ready_ = true;
    pause_ns_ = 0;
    why_.clear();
    auto waiting = std::move(waiting_);
    waiting_.clear();
    for (auto& entry : waiting) Begin(entry);
  }

  void Failed(const std::string& why) {
    why_ = why;
    session_ = tollfree_session{};
    is_ready_ = false;
    pause_ns_ = std::min(std::max(kPauseMin, pause_ns_ * 2), kPauseMax);
    next_ns_ = tollfree_now_ns() + pause_ns_;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      if ((*at)->waits_for_ready) {
        ++at;
        continue;
      }
      auto entry = std::move(*at);
      at = waiting_.erase(at);
      entry->call->OnEnded(kUnavailable, Unavailable(), Payload());
    }
    if (!waiting_.empty()) DialLater();
  }

  void DialLater() {
    if (is_dial_due_) return;
    is_dial_due_ = true;
    loop_->At(next_ns_, [this] {
      is_dial_due_ = false;
      if (session_.id == 0 && !waiting_.empty() && !is_broken_) Dial();
    });
  }

  // The session takes no more calls: the next call begins another.
  void Over() {
    session_ = tollfree_session{};
    is_ready_ = false;
  }

  // A call that the server has not looked at is made again, if all that it sent is still here.
  bool Again(const std::shared_ptr<Entry>& entry, const tollfree_event& event) {
    Call& call = *entry->call;
    bool may = (event.flags & TOLLFREE_FLAG_UNPROCESSED) != 0 && entry->is_last && !call.has_headers_ && !call.is_ended_ &&
               entry->again < kAgainMax;
    if (!may) return false;
    entry->again++;
    call.is_live_ = false;
    tollfree_buffer_release(event.payload.buffer);
    Begin(entry);
    return true;
  }

  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<Entry>> calls_;
  std::list<std::shared_ptr<Entry>> waiting_;
  tollfree_session session_{};
  bool is_ready_ = false;
  bool is_broken_ = false;
  bool is_dial_due_ = false;
  std::string why_;
  uint64_t pause_ns_ = 0;
  uint64_t next_ns_ = 0;
};

std::shared_ptr<Connection> Connection::Make(const std::string& address, const ChannelOptions& options) {
  std::shared_ptr<Connection> made(new Connection);
  made->state_ = std::make_shared<State>(address);
  // The loop's threads outlive a channel that ends in a reaction.
  made->loop_ = std::shared_ptr<Loop>(new Loop(made->state_.get(), 1), [state = made->state_](Loop* loop) { delete loop; });
  made->state_->loop_ = made->loop_.get();
  made->core_ = std::make_shared<CoreCall>(address);
  tollfree_config config{};
  config.size = sizeof config;
  config.wait = static_cast<uint32_t>(options.wait);
  config.message_len_max = options.message_len_max;
  config.agent = tollfree_text(options.agent.c_str());
  std::string error = made->loop_->Open(config);
  if (!error.empty()) {
    Lock lock = made->loop_->Hold();
    made->state_->OnBroken(error);
  }
  return made;
}

Connection::~Connection() {
  loop_->Close();
}

const std::string& Connection::address() const { return state_->address_; }

std::shared_ptr<Call> Connection::NewCall() { return std::make_shared<Call>(loop_, state_.get()); }

void Connection::Begin(const std::shared_ptr<Call>& call, const CallStart& start, bool waits) {
  auto entry = std::make_shared<State::Entry>();
  entry->call = call;
  entry->path = start.path;
  tollfree_bytes metadata = start.metadata != nullptr ? start.metadata->bytes() : tollfree_bytes{};
  entry->metadata.assign(reinterpret_cast<const char*>(metadata.data), metadata.len);
  entry->has_message = start.message != nullptr;
  entry->is_last = start.is_last;
  entry->waits_for_ready = start.waits_for_ready;
  if (start.message != nullptr) {
    tollfree_payload share = start.message->get();
    // Who waits keeps the bytes until the call is over.
    if (share.buffer.id != 0) {
      tollfree_buffer_retain(start.message->get().buffer, &share.buffer);
    } else if (!waits) {
      tollfree_buffer_copy(start.message->get().bytes, &share);
    }
    entry->message = Payload(share);
  }
  Lock lock = loop_->Hold();
  call->deadline_ns_ = start.deadline_ns;
  call->is_finished_ = start.is_last;
  Task begin = [state = state_.get(), entry] { state->Begin(entry); };
  if (waits) {
    loop_->Await(lock, call.get(), [of = call.get()] { return of->HasEnded(); }, kNoEnd, std::move(begin));
  } else {
    loop_->Do(lock, std::move(begin));
  }
}

}  // namespace internal

const std::string& Channel::address() const { return connection_->address(); }

std::shared_ptr<Channel> CreateChannel(const std::string& address, const ChannelOptions& options) {
  return std::make_shared<Channel>(internal::Connection::Make(address, options));
}

}  // namespace tollfree
