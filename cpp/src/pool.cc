#include <tollfree/internal/bytes.h>
#include <tollfree/pool.h>

namespace tollfree {
namespace {

tollfree_pool Made(int number, tollfree_pool pool, grpc::Status* status) {
  if (status != nullptr) *status = number == 0 ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, tollfree_error_text());
  return number == 0 ? pool : tollfree_pool{};
}

}  // namespace

std::shared_ptr<Pool> Pool::Create(const std::string& address, grpc::Status* status) {
  tollfree_pool pool{};
  int number = tollfree_pool_create(tollfree_text(address.c_str()), nullptr, &pool);
  pool = Made(number, pool, status);
  return pool.id == 0 ? nullptr : std::shared_ptr<Pool>(new Pool(pool));
}

std::shared_ptr<Pool> Pool::Join(const std::string& address, grpc::Status* status) {
  tollfree_pool pool{};
  int number = tollfree_pool_join(tollfree_text(address.c_str()), nullptr, &pool);
  pool = Made(number, pool, status);
  return pool.id == 0 ? nullptr : std::shared_ptr<Pool>(new Pool(pool));
}

Pool::~Pool() { tollfree_pool_release(handle_); }

grpc::Status Pool::Buffer(size_t size, uint8_t** memory, grpc::Slice* slice) {
  tollfree_payload payload{};
  if (tollfree_pool_buffer(handle_, size, memory, &payload) != 0) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, tollfree_error_text());
  auto* kept = new internal::Payload(payload);
  *slice = grpc::Slice(*memory, size, [](void* of) { delete static_cast<internal::Payload*>(of); }, kept);
  return grpc::Status::OK;
}

}  // namespace tollfree
