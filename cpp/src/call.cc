#include <tollfree/internal/call.h>
#include <tollfree/internal/compression.h>

#include "loop.h"

namespace tollfree {
namespace internal {
namespace {

tollfree_bytes None() { return {nullptr, 0}; }

// Messages that wait to be read, at most, before the other side is held up: so many, or so many bytes together.
constexpr size_t kInboxCount = 64;
constexpr size_t kInboxLen = 256 << 10;

}  // namespace

void Call::Changed() {
  loop_->Changed(this);
  for (size_t at = 0; at < watches_.size();) {
    if ((this->*watches_[at].is_ready)()) {
      std::function<void()> then = std::move(watches_[at].then);
      watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(at));
      loop_->RemoveDuty();
      loop_->Post(std::move(then));
    } else {
      at++;
    }
  }
}

void Call::When(Lock&, bool (Call::*is_ready)() const, std::function<void()> then) {
  if ((this->*is_ready)()) {
    loop_->Post(std::move(then));
    return;
  }
  watches_.push_back(Watch{is_ready, std::move(then)});
  loop_->AddDuty();
}

void Call::Await(Lock& lock, bool (Call::*is_ready)() const) {
  if ((this->*is_ready)()) return;
  loop_->Await(lock, this, [this, is_ready] { return (this->*is_ready)(); }, kNoEnd);
}

bool Call::AwaitHeaders() {
  Lock lock = loop_->Hold();
  Await(lock, &Call::HasHeadersOrEnd);
  return has_headers_;
}

bool Call::Read(Message* message) {
  Lock lock = loop_->Hold();
  Await(lock, &Call::HasMessageOrEnd);
  if (inbox_.empty()) return false;
  *message = TakeFirst(lock);
  return true;
}

Message Call::TakeFirst(Lock& lock) {
  Message first = std::move(inbox_.front());
  inbox_.pop_front();
  inbox_len_ -= first.size();
  if (first.is_compressed) {
    first.encoding = ValueOf(headers_.get().bytes, "grpc-encoding");
    first.len_max = loop_->message_len_max();
  }
  if (is_paused_ && inbox_.size() <= kInboxCount / 2 && inbox_len_ <= kInboxLen / 2) {
    is_paused_ = false;
    if (is_live_) {
      loop_->Do(lock, [self = shared_from_this()] {
        if (self->is_live_) tollfree_call_resume(self->loop_->handle(), self->id_);
      });
    }
  }
  return first;
}

bool Call::Take(Message* message) {
  Lock lock = loop_->Hold();
  if (inbox_.empty()) return false;
  *message = TakeFirst(lock);
  if (HasDrained()) Changed();
  return true;
}

void Call::Send(const Payload& message, bool is_last) {
  if (is_ended_ || !is_live_) return;
  int number = tollfree_call_send(loop_->handle(), id_, message.get(), message.flags());
  if (number == 0) {
    is_unsent_ = true;
    if (is_last && !is_server_) tollfree_call_finish(loop_->handle(), id_);
  } else if (number != TOLLFREE_ERROR_CALL_ENDED) {
    std::string why = tollfree_error_text();
    tollfree_call_cancel(loop_->handle(), id_, 13);
    OnEnded(13, "a message can't be sent: " + why, Payload());
  }
}

void Call::Pack(Payload* message) const { Compress(encoding_, message); }

bool Call::Write(Payload message, bool is_last) {
  Pack(&message);
  Lock lock = loop_->Hold();
  if (is_ended_ || is_finished_) return false;
  is_finished_ = is_last;
  is_unsent_ = true;
  auto has_sent = [this] { return HasSent(); };
  if (loop_->Take(lock)) {
    Send(message, is_last);
    loop_->DriveTaken(lock, this, has_sent, kNoEnd);
  } else {
    // Where the call ends meanwhile, who drives finds it ended.
    auto share = std::make_shared<Payload>(std::move(message));
    loop_->Do(lock, [self = shared_from_this(), share, is_last] { self->Send(*share, is_last); });
    loop_->Await(lock, this, has_sent, kNoEnd);
  }
  return WasSent();
}

void Call::Submit(Payload message, bool is_last) {
  Pack(&message);
  Lock lock = loop_->Hold();
  if (is_finished_) return;
  is_finished_ = is_last;
  is_unsent_ = true;
  if (is_ended_) return;
  auto share = std::make_shared<Payload>(std::move(message));
  loop_->Do(lock, [self = shared_from_this(), share, is_last] { self->Send(*share, is_last); });
}

void Call::WhenSent(Payload message, bool is_last, std::function<void(bool)> then) {
  Submit(std::move(message), is_last);
  WhenWritable(std::move(then));
}

bool Call::AwaitFor(bool (Call::*is_ready)() const, uint64_t timeout_ns) {
  Lock lock = loop_->Hold();
  if (timeout_ns == 0 || (this->*is_ready)()) return (this->*is_ready)();
  return loop_->Await(lock, this, [this, is_ready] { return (this->*is_ready)(); }, tollfree_now_ns() + timeout_ns);
}

void Call::WhenReady(bool (Call::*is_ready)() const, std::function<void()> then) {
  Lock lock = loop_->Hold();
  When(lock, is_ready, [self = shared_from_this(), then = std::move(then)] { then(); });
}

void Call::WhenWritable(std::function<void(bool)> then) {
  Lock lock = loop_->Hold();
  When(lock, &Call::HasSent, [self = shared_from_this(), then = std::move(then)] {
    then(self->HasGoneOut());
  });
}

void Call::FinishWriting() {
  Lock lock = loop_->Hold();
  if (is_finished_ || is_ended_) return;
  is_finished_ = true;
  loop_->Do(lock, [self = shared_from_this()] {
    if (self->is_live_) tollfree_call_finish(self->loop_->handle(), self->id_);
  });
}

const Outcome& Call::AwaitEnd() {
  Lock lock = loop_->Hold();
  Await(lock, &Call::HasEnded);
  return outcome_;
}

void Call::WhenHeaders(std::function<void(bool)> then) {
  Lock lock = loop_->Hold();
  When(lock, &Call::HasHeadersOrEnd, [self = shared_from_this(), then = std::move(then)] {
    bool has_headers;
    {
      Lock lock = self->loop_->Hold();
      has_headers = self->has_headers_;
    }
    then(has_headers);
  });
}

void Call::WhenReadable(std::function<void()> then) {
  Lock lock = loop_->Hold();
  When(lock, &Call::HasMessageOrEnd, [self = shared_from_this(), then = std::move(then)] { then(); });
}

void Call::WhenDrained(std::function<void()> then) {
  Lock lock = loop_->Hold();
  When(lock, &Call::HasDrained, [self = shared_from_this(), then = std::move(then)] { then(); });
}

void Call::Cancel(uint32_t code, const std::string& text) {
  Lock lock = loop_->Hold();
  if (is_ended_) return;
  bool was_live = is_live_;
  inbox_.clear();
  OnEnded(code, text, Payload());
  if (!was_live) return;
  loop_->Do(lock, [self = shared_from_this(), code] { tollfree_call_cancel(self->loop_->handle(), self->id_, code); });
}

bool Call::SendHeaders(const MetadataBlock& metadata) {
  Lock lock = loop_->Hold();
  if (is_ended_) return false;
  // The block is the caller's; the driver may be another thread.
  tollfree_bytes bytes = metadata.bytes();
  std::string block(reinterpret_cast<const char*>(bytes.data), bytes.len);
  loop_->Do(lock, [self = shared_from_this(), block = std::move(block)] {
    tollfree_bytes of{reinterpret_cast<const uint8_t*>(block.data()), block.size()};
    if (self->is_live_) tollfree_call_answer_headers(self->loop_->handle(), self->id_, of);
  });
  return true;
}

bool Call::End(uint32_t code, const MetadataBlock& trailers, const Payload* message, const MetadataBlock* headers) {
  Lock lock = loop_->Hold();
  on_cancel_ = nullptr;
  if (is_ended_) return false;
  auto finish = [this, code](tollfree_bytes head, bool has_head, tollfree_bytes tail, const Payload* body) {
    if (!is_live_) return;
    tollfree_loop loop = loop_->handle();
    int number = 0;
    if (has_head) number = tollfree_call_answer_headers(loop, id_, head);
    if (number == 0 && body != nullptr) number = tollfree_call_send(loop, id_, body->get(), body->flags());
    if (number == 0) number = tollfree_call_answer_end(loop, id_, code, tail);
    if (number != 0 && number != TOLLFREE_ERROR_CALL_ENDED) {
      // The client must not wait for what can't be sent: too much metadata, most likely.
      tollfree_call_cancel(loop, id_, 13);
    }
    OnEnded(code, "", Payload());
  };
  if (!loop_->IsDriven()) {
    loop_->Do(lock, [&] {
      finish(headers != nullptr ? headers->bytes() : None(), headers != nullptr, trailers.bytes(), message);
    });
    return true;
  }
  struct Kept {
    std::string head, tail;
    Payload body;
  };
  auto text = [](tollfree_bytes bytes) { return std::string(reinterpret_cast<const char*>(bytes.data), bytes.len); };
  auto kept = std::make_shared<Kept>();
  bool has_head = headers != nullptr, has_body = message != nullptr;
  kept->tail = text(trailers.bytes());
  if (has_head) kept->head = text(headers->bytes());
  if (has_body) {
    message->Share(&kept->body);
  }
  loop_->Do(lock, [self = shared_from_this(), kept, has_head, has_body, finish] {
    auto bytes = [](const std::string& of) {
      return of.empty() ? None() : tollfree_bytes{reinterpret_cast<const uint8_t*>(of.data()), of.size()};
    };
    finish(bytes(kept->head), has_head, bytes(kept->tail), has_body ? &kept->body : nullptr);
  });
  return true;
}

void Call::SetOnCancel(std::function<void()> on_cancel) {
  Lock lock = loop_->Hold();
  on_cancel_ = std::move(on_cancel);
  if (is_ended_ && on_cancel_ != nullptr) on_cancel_();
}

void Call::PostLocked(std::function<void()> run) { loop_->Post(std::move(run)); }

void Call::Post(std::function<void()> run) {
  Lock lock = loop_->Hold();
  loop_->Post(std::move(run));
}

bool Call::WasSent() const { return !is_unsent_ || (is_ended_ && outcome_.code == 0); }

bool Call::HasGoneOut() {
  Lock lock = loop_->Hold();
  return WasSent();
}

bool Call::IsEnded() {
  Lock lock = loop_->Hold();
  return is_ended_;
}

void Call::OnEvent(const tollfree_event& event) {
  Payload payload(event.payload);
  switch (event.kind) {
    case TOLLFREE_EVENT_HEADERS:
      has_headers_ = true;
      headers_ = std::move(payload);
      break;
    case TOLLFREE_EVENT_MESSAGE:
      inbox_.emplace_back();
      inbox_.back().payload = std::move(payload);
      inbox_.back().is_compressed = (event.flags & TOLLFREE_FLAG_COMPRESSED) != 0;
      for (size_t at = 0; at < event.more_count; at++) inbox_.back().more.emplace_back(event.more[at]);
      inbox_len_ += inbox_.back().size();
      if (!is_paused_ && (inbox_.size() >= kInboxCount || inbox_len_ >= kInboxLen)) {
        // The other side waits on its credit until this one reads.
        is_paused_ = true;
        tollfree_call_pause(loop_->handle(), id_);
      }
      break;
    case TOLLFREE_EVENT_HALF_CLOSED:
      is_half_closed_ = true;
      break;
    case TOLLFREE_EVENT_SENT:
      is_unsent_ = false;
      break;
    case TOLLFREE_EVENT_ENDED: {
      OnEnded(event.code, std::string(reinterpret_cast<const char*>(event.text.data), event.text.len), std::move(payload));
      return;
    }
    default:
      return;
  }
  Changed();
}

void Call::OnEnded(uint32_t code, std::string text, Payload trailers) {
  if (is_ended_) return;
  is_ended_ = true;
  if (is_live_) owner_->Forget(id_);
  is_live_ = false;
  outcome_.code = code;
  outcome_.text = std::move(text);
  outcome_.trailers = std::move(trailers);
  if (on_cancel_ != nullptr) on_cancel_();
  Changed();
}

}  // namespace internal
}  // namespace tollfree
