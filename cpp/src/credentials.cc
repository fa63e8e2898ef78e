#include "credentials.h"

#include <map>

namespace tollfree {
namespace {

class PluginCredentials final : public grpc::CallCredentials {
 public:
  explicit PluginCredentials(std::unique_ptr<grpc::MetadataCredentialsPlugin> plugin)
      : plugin_(std::move(plugin)), stock_(grpc::MetadataCredentialsFromPlugin(std::make_unique<Forward>(plugin_))) {}

  bool ApplyToCall(grpc_call* call) override { return stock_->ApplyToCall(call); }
  grpc::string DebugString() override { return "tollfree: " + plugin_->DebugString(); }
  grpc::MetadataCredentialsPlugin& plugin() { return *plugin_; }

 protected:
  // Not one of gRPC's, which are combined with others by the core.
  grpc::SecureCallCredentials* AsSecureCredentials() override { return nullptr; }

 private:
  // The same plugin, for gRPC's own calls.
  class Forward final : public grpc::MetadataCredentialsPlugin {
   public:
    explicit Forward(std::shared_ptr<grpc::MetadataCredentialsPlugin> to) : to_(std::move(to)) {}
    bool IsBlocking() const override { return to_->IsBlocking(); }
    const char* GetType() const override { return to_->GetType(); }
    grpc::Status GetMetadata(grpc::string_ref service_url, grpc::string_ref method_name, const grpc::AuthContext& context,
                             std::multimap<grpc::string, grpc::string>* metadata) override {
      return to_->GetMetadata(service_url, method_name, context, metadata);
    }

   private:
    const std::shared_ptr<grpc::MetadataCredentialsPlugin> to_;
  };

  const std::shared_ptr<grpc::MetadataCredentialsPlugin> plugin_;
  const std::shared_ptr<grpc::CallCredentials> stock_;
};

}  // namespace

std::shared_ptr<grpc::CallCredentials> CredentialsFromPlugin(std::unique_ptr<grpc::MetadataCredentialsPlugin> plugin) {
  return std::make_shared<PluginCredentials>(std::move(plugin));
}

namespace internal {

grpc::Status PutCredentials(grpc::CallCredentials& credentials, const std::string& address, const std::string& path,
                            const grpc::AuthContext& identity, MetadataBlock* metadata) {
  auto* ours = dynamic_cast<PluginCredentials*>(&credentials);
  if (ours == nullptr) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                        "gRPC's own credentials can't be read outside of its channels: make them by tollfree::CredentialsFromPlugin");
  }
  // As gRPC has it: the service's URL, and the method's name.
  size_t slash = path.rfind('/');
  std::string url = address + path.substr(0, slash);
  std::string method = path.substr(slash + 1);
  std::multimap<grpc::string, grpc::string> pairs;
  grpc::Status status = ours->plugin().GetMetadata(url, method, identity, &pairs);
  if (!status.ok()) {
    bool may_pass = status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    return grpc::Status(may_pass ? status.error_code() : grpc::StatusCode::UNAVAILABLE, "the call's credentials: " + status.error_message());
  }
  for (const auto& pair : pairs) {
    if (!metadata->Put(pair.first, pair.second)) return grpc::Status(grpc::StatusCode::INTERNAL, metadata->error());
  }
  return grpc::Status::OK;
}

}  // namespace internal
}  // namespace tollfree
