// grpc.health.v1.Health, for servers of Tollfree.
#ifndef TOLLFREE_HEALTH_H
#define TOLLFREE_HEALTH_H

#include <grpcpp/health_check_service_interface.h>
#include <tollfree/server.h>

#include <memory>

namespace tollfree {

// Has a server answer health checks. Any thread may set states. The empty name is the whole server's, SERVING from the beginning; services
// that no state was set for are unknown to it. It outlives the server.
std::unique_ptr<grpc::HealthCheckServiceInterface> AddHealth(Server* server);

}  // namespace tollfree

#endif
