// Package outside runs programs and tests of other projects over Tollfree's Go implementation: gRPC's cases by grpc-go's own client, grpcurl,
// ghz, and grpc-go's own end-to-end tests. It is a module of its own, so that what it needs is nobody else's to fetch: `make go-outside`.
package outside
