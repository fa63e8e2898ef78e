// Pools: memory that processes of one trust domain share, so that long messages go by reference.
#ifndef TOLLFREE_POOL_H
#define TOLLFREE_POOL_H

#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>
#include <tollfree.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tollfree {

// This process's membership of a pool, for `ChannelOptions::pool` and `ServerOptions::pool`. Any thread may use it. The process leaves the
// pool when its channels, servers and slices of the pool are gone, too.
class Pool {
 public:
  // Makes a pool that other processes of this user join at `shm:///path` or `shm-abstract:name`. Null where that fails; `status` says why.
  static std::shared_ptr<Pool> Create(const std::string& address, grpc::Status* status = nullptr);
  // Joins the pool at an address. Waits for its answer, some seconds at most. Null as above.
  static std::shared_ptr<Pool> Join(const std::string& address, grpc::Status* status = nullptr);

  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Memory of the pool for `size` bytes, zeros. Write to `*memory` before the slice is sent, and never after. RESOURCE_EXHAUSTED if it can't be
  // had within a second.
  grpc::Status Buffer(size_t size, uint8_t** memory, grpc::Slice* slice);

  tollfree_pool handle() const { return handle_; }

 private:
  explicit Pool(tollfree_pool handle) : handle_(handle) {}

  const tollfree_pool handle_;
};

}  // namespace tollfree

#endif
