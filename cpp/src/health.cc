#include <tollfree/health.h>

#include <tollfree/internal/server_reactors.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "wire_text.h"

namespace tollfree {
namespace internal {
namespace {

enum State { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

bool NameOf(const grpc::ByteBuffer& request, std::string* name) {
  return ForEachField(TextOfBuffer(request), [name](uint32_t field, uint64_t, std::string text) {
    if (field == 1) *name = std::move(text);
  });
}

grpc::ByteBuffer Answer(State state) {
  std::string text;
  PutNumber(&text, 1, state);
  return BufferOfText(text);
}

class Watcher;

// States of services, and who watches them.
class States {
 public:
  State Get(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    return GetLocked(name);
  }
  void Set(const std::string& name, State state);
  void SetAll(State state, bool is_last);
  // Whether the state of what it watches is another than it knows, which it knows then. Else it is told later.
  bool Next(Watcher* watcher);
  void Remove(Watcher* watcher) {
    std::lock_guard<std::mutex> lock(mutex_);
    watchers_.erase(watcher);
  }

 private:
  State GetLocked(const std::string& name) const {
    auto found = states_.find(name);
    return found == states_.end() ? kServiceUnknown : found->second;
  }
  void Tell();

  std::mutex mutex_;
  std::map<std::string, State> states_{{"", kServing}};
  std::set<Watcher*> watchers_;
  bool is_shut_down_ = false;
};

// A client that is told each change. It writes, or waits in the states' list.
class Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Watcher(std::shared_ptr<States> states, std::string name) : states_(std::move(states)), name_(std::move(name)) {}

  // Behind the handler, which has to return the reactor first: operations before are kept for it.
  void Go() {
    if (states_->Next(this)) Write();
  }
  void Write() {
    answer_ = Answer(known_);
    StartWrite(&answer_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) return Go();
    End();
  }
  void OnCancel() override { End(); }
  void OnDone() override {
    states_->Remove(this);
    delete this;
  }

  const std::string& name() const { return name_; }
  State known_ = kUnknown;

 private:
  void End() {
    states_->Remove(this);
    if (!is_ended_.exchange(true)) Finish(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"));
  }

  const std::shared_ptr<States> states_;
  const std::string name_;
  grpc::ByteBuffer answer_;
  std::atomic<bool> is_ended_{false};
};

bool States::Next(Watcher* watcher) {
  std::lock_guard<std::mutex> lock(mutex_);
  State state = GetLocked(watcher->name());
  if (state == watcher->known_) {
    watchers_.insert(watcher);
    return false;
  }
  watcher->known_ = state;
  return true;
}

void States::Tell() {
  for (auto at = watchers_.begin(); at != watchers_.end();) {
    Watcher* watcher = *at;
    State state = GetLocked(watcher->name());
    if (state == watcher->known_) {
      ++at;
      continue;
    }
    at = watchers_.erase(at);
    watcher->known_ = state;
    watcher->Write();
  }
}

void States::Set(const std::string& name, State state) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_shut_down_) return;
  states_[name] = state;
  Tell();
}

void States::SetAll(State state, bool is_last) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_shut_down_) return;
  is_shut_down_ = is_last;
  for (auto& each : states_) each.second = state;
  Tell();
}

class Health final : public grpc::HealthCheckServiceInterface {
 public:
  explicit Health(std::shared_ptr<States> states) : states_(std::move(states)) {}
  void SetServingStatus(const std::string& name, bool serving) override { states_->Set(name, serving ? kServing : kNotServing); }
  void SetServingStatus(bool serving) override { states_->SetAll(serving ? kServing : kNotServing, false); }
  void Shutdown() override { states_->SetAll(kNotServing, true); }

 private:
  const std::shared_ptr<States> states_;
};

}  // namespace
}  // namespace internal

std::unique_ptr<grpc::HealthCheckServiceInterface> AddHealth(Server* server) {
  using namespace internal;
  auto states = std::make_shared<States>();
  server->AddService("grpc.health.v1.Health");
  server->AddMethod("/grpc.health.v1.Health/Check",
                    MakeUnary<grpc::ByteBuffer, grpc::ByteBuffer>([states](grpc::ServerContext*, const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
                      std::string name;
                      if (!NameOf(*request, &name)) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "this is no HealthCheckRequest");
                      State state = states->Get(name);
                      if (state == kServiceUnknown) return grpc::Status(grpc::StatusCode::NOT_FOUND, "service name unknown");
                      *response = Answer(state);
                      return grpc::Status::OK;
                    }));
  server->AddMethod("/grpc.health.v1.Health/Watch",
                    MakeWriteReactor<grpc::ByteBuffer, grpc::ByteBuffer>([states](grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
                      std::string name;
                      bool is_sound = NameOf(*request, &name);
                      auto* watcher = new Watcher(states, name);
                      if (is_sound) {
                        watcher->Go();
                      } else {
                        watcher->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "this is no HealthCheckRequest"));
                      }
                      return watcher;
                    }));
  return std::make_unique<Health>(states);
}

}  // namespace tollfree
