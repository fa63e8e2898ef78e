package tollfree

import (
	"context"

	"google.golang.org/grpc"
)

// UnaryOver is the last interceptor of a *grpc.ClientConn whose unary calls conn is to make, for code that demands that type.
// Such a connection never connects by itself:
//
//	grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
//		grpc.WithChainUnaryInterceptor(tollfree.UnaryOver(conn)), grpc.WithChainStreamInterceptor(tollfree.StreamOver(conn)))
//
// Its own stats handlers, service config and state have no effect on the calls; those of conn have.
func UnaryOver(conn grpc.ClientConnInterface) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, options ...grpc.CallOption) error {
		return conn.Invoke(ctx, method, request, reply, options...)
	}
}

// StreamOver does for calls with streams what UnaryOver does for unary ones.
func StreamOver(conn grpc.ClientConnInterface) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		return conn.NewStream(ctx, desc, method, options...)
	}
}
