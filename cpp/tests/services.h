// The service of the tests, with blocking handlers and with reactors.
#ifndef TOLLFREE_TESTS_SERVICES_H
#define TOLLFREE_TESTS_SERVICES_H

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "probe.tollfree.h"

namespace tollfree {
namespace tests {

using cpp::probe::Answer;
using cpp::probe::Ask;
using cpp::probe::Probe;
using cpp::probe::ProbeTollfree;

// Handlers that saw their call cancelled.
inline std::atomic<int> cancelled_count{0};
// Answers of lists that went out.
inline std::atomic<int> listed_count{0};
// Reactors that are there.
inline std::atomic<int> reactor_count{0};

inline grpc::Status StatusOf(const Ask& ask) {
  return ask.code() == 0 ? grpc::Status::OK : grpc::Status(static_cast<grpc::StatusCode>(ask.code()), ask.message(), ask.details());
}

template <class Context>
void Fill(Context* context, const Ask& ask, Answer* answer) {
  answer->set_text("re: " + ask.text());
  answer->set_body(ask.body());
  answer->set_peer(context->peer());
  auto uids = context->auth_context()->FindPropertyValues("tollfree_uid");
  if (!uids.empty()) answer->set_uid(std::string(uids[0].data(), uids[0].size()));
  auto left = context->deadline() - std::chrono::system_clock::now();
  answer->set_deadline_ms(std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
  for (const auto& pair : context->client_metadata()) {
    std::string name(pair.first.data(), pair.first.size()), value(pair.second.data(), pair.second.size());
    if (name.compare(0, 2, "x-") != 0 && name != "authorization") continue;
    answer->add_metadata(name + "=" + value);
    context->AddInitialMetadata(name, value);
    context->AddTrailingMetadata("t" + name, value);
  }
}

class BlockingProbe : public Probe::Service {
 public:
  grpc::Status Unary(grpc::ServerContext* context, const Ask* ask, Answer* answer) override {
    if (ask->throws()) throw std::runtime_error("as asked");
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ask->wait_ms());
    while (ask->wait_ms() > 0 && std::chrono::steady_clock::now() < until) {
      if (context->IsCancelled()) {
        cancelled_count++;
        return grpc::Status::CANCELLED;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (ask->cancels()) context->TryCancel();
    Fill(context, *ask, answer);
    return StatusOf(*ask);
  }
  grpc::Status Collect(grpc::ServerContext* context, grpc::ServerReader<Ask>* reader, Answer* answer) override {
    Ask ask, last;
    std::string text;
    uint32_t count = 0;
    while (reader->Read(&ask)) {
      text += ask.text();
      count++;
      last = ask;
      if (ask.code() != 0) return StatusOf(ask);
    }
    if (context->IsCancelled()) cancelled_count++;
    Fill(context, last, answer);
    answer->set_text(text);
    answer->set_count(count);
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext* context, const Ask* ask, grpc::ServerWriter<Answer>* writer) override {
    for (uint32_t at = 0; at < ask->count(); at++) {
      Answer answer;
      if (at == 0) Fill(context, *ask, &answer);
      answer.set_count(at);
      answer.set_body(ask->body());
      if (!writer->Write(answer)) {
        cancelled_count++;
        break;
      }
      listed_count++;
    }
    return StatusOf(*ask);
  }
  grpc::Status Chat(grpc::ServerContext* context, grpc::ServerReaderWriter<Answer, Ask>* stream) override {
    Ask ask;
    uint32_t count = 0;
    while (stream->Read(&ask)) {
      Answer answer;
      if (count == 0) Fill(context, ask, &answer);
      answer.set_text("re: " + ask.text());
      answer.set_body(ask.body());
      answer.set_count(count++);
      if (ask.code() != 0) return StatusOf(ask);
      if (!stream->Write(answer)) break;
    }
    if (context->IsCancelled()) cancelled_count++;
    return grpc::Status::OK;
  }
};

// Counts what is there.
template <class Reactor>
class Counted : public Reactor {
 public:
  Counted() { reactor_count++; }
  ~Counted() override { reactor_count--; }
  void OnDone() override { delete this; }
  void OnCancel() override { cancelled_count++; }
};

class ReactorProbe : public Probe::CallbackService {
 public:
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const Ask* ask, Answer* answer) override {
    if (ask->throws()) throw std::runtime_error("as asked");
    if (ask->wait_ms() > 0) return new Late(context, ask, answer);
    if (ask->cancels()) context->TryCancel();
    Fill(context, *ask, answer);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(StatusOf(*ask));
    return reactor;
  }
  grpc::ServerReadReactor<Ask>* Collect(grpc::CallbackServerContext* context, Answer* answer) override { return new Collecting(context, answer); }
  grpc::ServerWriteReactor<Answer>* List(grpc::CallbackServerContext* context, const Ask* ask) override { return new Listing(context, ask); }
  grpc::ServerBidiReactor<Ask, Answer>* Chat(grpc::CallbackServerContext* context) override { return new Chatting(context); }

 private:
  // Finishes in a thread of its own.
  class Late final : public Counted<grpc::ServerUnaryReactor> {
   public:
    Late(grpc::CallbackServerContext* context, const Ask* ask, Answer* answer) {
      thread_ = std::thread([this, context, ask, answer] {
        for (uint32_t ms = 0; ms < ask->wait_ms() && !context->IsCancelled(); ms++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        Fill(context, *ask, answer);
        Finish(context->IsCancelled() ? grpc::Status::CANCELLED : StatusOf(*ask));
      });
    }
    void OnDone() override {
      thread_.join();
      delete this;
    }

   private:
    std::thread thread_;
  };

  class Collecting final : public Counted<grpc::ServerReadReactor<Ask>> {
   public:
    Collecting(grpc::CallbackServerContext* context, Answer* answer) : context_(context), answer_(answer) { StartRead(&ask_); }
    void OnReadDone(bool ok) override {
      if (ok) {
        text_ += ask_.text();
        count_++;
        last_ = ask_;
        if (ask_.code() != 0) return Finish(StatusOf(ask_));
        return StartRead(&ask_);
      }
      Fill(context_, last_, answer_);
      answer_->set_text(text_);
      answer_->set_count(count_);
      Finish(grpc::Status::OK);
    }

   private:
    grpc::CallbackServerContext* const context_;
    Answer* const answer_;
    Ask ask_, last_;
    std::string text_;
    uint32_t count_ = 0;
  };

  class Listing final : public Counted<grpc::ServerWriteReactor<Answer>> {
   public:
    Listing(grpc::CallbackServerContext* context, const Ask* ask) : context_(context), ask_(*ask) { Next(); }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      listed_count++;
      Next();
    }

   private:
    void Next() {
      answer_.Clear();
      if (count_ == ask_.count()) return Finish(StatusOf(ask_));
      if (count_ == 0) Fill(context_, ask_, &answer_);
      answer_.set_count(count_++);
      answer_.set_body(ask_.body());
      if (count_ == ask_.count() && ask_.code() == 0) return StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
      StartWrite(&answer_);
    }

    grpc::CallbackServerContext* const context_;
    const Ask ask_;
    Answer answer_;
    uint32_t count_ = 0;
  };

  class Chatting final : public Counted<grpc::ServerBidiReactor<Ask, Answer>> {
   public:
    explicit Chatting(grpc::CallbackServerContext* context) : context_(context) { StartRead(&ask_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      if (ask_.code() != 0) return Finish(StatusOf(ask_));
      answer_.Clear();
      if (count_ == 0) Fill(context_, ask_, &answer_);
      answer_.set_text("re: " + ask_.text());
      answer_.set_body(ask_.body());
      answer_.set_count(count_++);
      StartWrite(&answer_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartRead(&ask_);
    }

   private:
    grpc::CallbackServerContext* const context_;
    Ask ask_;
    Answer answer_;
    uint32_t count_ = 0;
  };
};

}  // namespace tests
}  // namespace tollfree

#endif
