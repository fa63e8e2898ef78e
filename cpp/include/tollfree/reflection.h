// grpc.reflection.v1.ServerReflection, and v1alpha, for servers of Tollfree.
#ifndef TOLLFREE_REFLECTION_H
#define TOLLFREE_REFLECTION_H

#include <tollfree/server.h>

namespace tollfree {

// Has a server describe all of its services, also services registered later, by the descriptors that generated code brings with it.
void AddReflection(Server* server);

}  // namespace tollfree

#endif
