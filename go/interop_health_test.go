//go:build interop

package tollfree

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop/grpc_testing"
)

// The Rust server has no health service: it counts as healthy.
func TestARustServerWithoutHealthServiceServes(t *testing.T) {
	conn, err := NewClient(rustServer(t), checked)
	wantNoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = grpc_testing.NewTestServiceClient(conn).EmptyCall(testContext(t), &grpc_testing.Empty{}, grpc.WaitForReady(true))
	wantNoError(t, err)
	if s := conn.balancer.endpoints[0].ready(); s == nil || s.health == nil {
		t.Error("nobody has asked for the server's health")
	}
}

// By way of a gateway, a backend of the group answers.
func TestHealthByWayOfAGateway(t *testing.T) {
	socket, _ := rustGateway(t, "[groups.default]\n")
	checks := health.NewServer()
	checks.SetServingStatus("db", notServing)
	backend := NewServer()
	grpc_testing.RegisterTestServiceServer(backend, &interopService{})
	healthpb.RegisterHealthServer(backend, checks)
	attached := make(chan error, 1)
	go func() { attached <- backend.Attach(socket, "default") }()
	t.Cleanup(func() {
		backend.GracefulStop()
		wantNoError(t, <-attached)
	})
	conn, err := NewClient(socket, WithVia("group:default"), checked)
	wantNoError(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.Connect()
	eventually(t, "the backend's answer", func() bool {
		err, _ := conn.balancer.endpoints[0].unhealthy()
		return err != nil
	})
	client := grpc_testing.NewTestServiceClient(conn)
	_, err = client.EmptyCall(testContext(t), &grpc_testing.Empty{})
	wantCode(t, err, codes.Unavailable, "NOT_SERVING")
	checks.SetServingStatus("db", serving)
	_, err = client.EmptyCall(testContext(t), &grpc_testing.Empty{}, grpc.WaitForReady(true))
	wantNoError(t, err)
}
