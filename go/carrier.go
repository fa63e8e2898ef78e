package tollfree

import "google.golang.org/grpc/codes"
import "google.golang.org/grpc/status"
import "context"
import "github.com/tollfree/tollfree/go/internal/call"

func transportDialer(*dialOptions) dialer {
	return func(ctx context.Context, address string) (call.Client, error) {
		return nil, status.Error(codes.Unimplemented, "no transport")
	}
}
func transportListener(*serverOptions) listenFunc {
	return func(address string) (call.Listener, error) {
		return nil, status.Error(codes.Unimplemented, "no transport")
	}
}
