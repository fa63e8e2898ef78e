#include "core_call.h"

#include <vector>

namespace tollfree {
namespace internal {
namespace {

// The user at the other end, as the kernel says.
class PeerIdentity final : public grpc::AuthContext {
 public:
  explicit PeerIdentity(const tollfree_peer* peer) {
    Put("transport_security_type", "tollfree");
    if (peer == nullptr) return;
    Put("tollfree_uid", std::to_string(peer->uid));
    Put("tollfree_gid", std::to_string(peer->gid));
    Put("tollfree_pid", std::to_string(peer->pid));
    is_known_ = true;
  }

  bool IsPeerAuthenticated() const override { return is_known_; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return FindPropertyValues(GetPeerIdentityPropertyName()); }
  std::string GetPeerIdentityPropertyName() const override { return is_known_ ? "tollfree_uid" : ""; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    std::vector<grpc::string_ref> values;
    for (const auto& property : properties_) {
      if (property.first == name) values.emplace_back(property.second.data(), property.second.size());
    }
    return values;
  }
  // gRPC's iterator reads the core's own properties alone.
  grpc::AuthPropertyIterator begin() const override { return Empty(); }
  grpc::AuthPropertyIterator end() const override { return Empty(); }
  // For processors of metadata, of which a session has none.
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  struct Empty : grpc::AuthPropertyIterator {};

  void Put(std::string name, std::string value) { properties_.emplace_back(std::move(name), std::move(value)); }

  std::vector<std::pair<std::string, std::string>> properties_;
  bool is_known_ = false;
};

}  // namespace

CoreCall::CoreCall(const std::string& peer, const tollfree_peer* identity) : identity_(std::make_shared<PeerIdentity>(identity)) {
  grpc_init();
  grpc_completion_queue* queue = grpc_completion_queue_create_for_pluck(nullptr);
  queue_ = std::make_unique<grpc::CompletionQueue>(queue);
  channel_ = grpc_lame_client_channel_create(peer.c_str(), GRPC_STATUS_UNAVAILABLE, "calls of this session do not go through gRPC");
  call_ = NewCall(queue);
}

grpc_call* CoreCall::NewCall(grpc_completion_queue* queue) const {
  return grpc_channel_create_call(channel_, nullptr, GRPC_PROPAGATE_DEFAULTS, queue, grpc_slice_from_static_string("/tollfree.Session/Call"),
                                  nullptr, gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
}

CoreCall::~CoreCall() {
  grpc_call_unref(call_);
  grpc_channel_destroy(channel_);
  queue_->Shutdown();
  queue_.reset();
  grpc_shutdown();
}

}  // namespace internal
}  // namespace tollfree
