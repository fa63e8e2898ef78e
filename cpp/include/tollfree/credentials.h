// Call credentials: metadata that a plugin makes for each call.
#ifndef TOLLFREE_CREDENTIALS_H
#define TOLLFREE_CREDENTIALS_H

#include <grpcpp/security/credentials.h>

#include <memory>

namespace tollfree {

// Credentials for `ClientContext::set_credentials`, for calls over Tollfree and over gRPC's own channels. Those that gRPC makes itself
// can't be read: a call over Tollfree that has them fails with UNAUTHENTICATED. The plugin is called in the calling thread.
std::shared_ptr<grpc::CallCredentials> CredentialsFromPlugin(std::unique_ptr<grpc::MetadataCredentialsPlugin> plugin);

}  // namespace tollfree

#endif
