#ifndef TOLLFREE_SRC_CREDENTIALS_H
#define TOLLFREE_SRC_CREDENTIALS_H

#include <grpcpp/security/auth_context.h>
#include <tollfree/credentials.h>
#include <tollfree/internal/bytes.h>

#include <string>

namespace tollfree {
namespace internal {

// Appends the metadata that credentials make for a call of a method's path.
grpc::Status PutCredentials(grpc::CallCredentials& credentials, const std::string& address, const std::string& path,
                            const grpc::AuthContext& identity, MetadataBlock* metadata);

}  // namespace internal
}  // namespace tollfree

#endif
