package tollfree

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

// checked has a client check the health of the service "db".
var checked = WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "db"}}`)

// newCheckedServer is newServer with grpc-go's health service, in which the service "db" has a status.
func (h *harness) newCheckedServer(number int, first healthpb.HealthCheckResponse_ServingStatus) (*Server, *health.Server) {
	h.t.Helper()
	checks := health.NewServer()
	checks.SetServingStatus("db", first)
	return h.newServerWith(number, checks), checks
}

func (h *harness) newServerWith(number int, checks healthpb.HealthServer, options ...ServerOption) *Server {
	h.t.Helper()
	s := NewServer(append(h.carrier.server(h), options...)...)
	pb.RegisterTestServer(s, named(fmt.Sprint(number)))
	healthpb.RegisterHealthServer(s, checks)
	h.serve(s, number)
	return s
}

func (h *harness) readyAre(conn *ClientConn, want ...bool) {
	h.t.Helper()
	is := make([]bool, len(want))
	for range 1000 {
		for i, e := range conn.balancer.endpoints {
			is[i] = e.ready() != nil
		}
		if slices.Equal(is, want) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.t.Fatalf("ready are %v, want %v", is, want)
}

func TestCallsGoToServersThatServe(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		_, first := h.newCheckedServer(0, notServing)
		_, second := h.newCheckedServer(1, serving)
		conn := h.newConn(WithEndpoint(h.address(1)), checked)
		client := pb.NewTestClient(conn)
		conn.Connect()
		for _, c := range []struct {
			first, second healthpb.HealthCheckResponse_ServingStatus
		}{
			{notServing, serving}, {serving, serving}, {serving, notServing}, {serving, serving}, {healthpb.HealthCheckResponse_UNKNOWN, serving},
		} {
			first.SetServingStatus("db", c.first)
			second.SetServingStatus("db", c.second)
			wants := []int{0, 0}
			h.readyAre(conn, c.first == serving, c.second == serving)
			for i, s := range []healthpb.HealthCheckResponse_ServingStatus{c.first, c.second} {
				if s == serving {
					wants[i] = 10
					if c.first == c.second {
						wants[i] = 5
					}
				}
			}
			if a, b := callsTo(t, client, 10); a != wants[0] || b != wants[1] {
				t.Fatalf("with %v and %v, calls went %d to %d", c.first, c.second, a, b)
			}
		}
	})
}

// A server that does not know the service answers so, and is out of use; one without health service is not.
func TestServersWithoutHealthServiceServe(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, named("0"))
		h.newServerWith(1, health.NewServer())
		conn := h.newConn(WithEndpoint(h.address(1)), checked)
		conn.Connect()
		h.readyAre(conn, true, false)
		eventually(t, "the second server's answer", func() bool {
			err, _ := conn.balancer.endpoints[1].unhealthy()
			return err != nil
		})
		if a, b := callsTo(t, pb.NewTestClient(conn), 10); a != 10 || b != 0 {
			t.Errorf("calls went %d to %d", a, b)
		}
		err, _ := conn.balancer.endpoints[1].unhealthy()
		wantCode(t, err, codes.Unavailable, "SERVICE_UNKNOWN")
	})
}

func TestCallsFailOrWaitWhileNoServerServes(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		_, checks := h.newCheckedServer(0, notServing)
		conn := h.newConn(checked)
		client := pb.NewTestClient(conn)
		for range 3 {
			_, err := client.Unary(testContext(t), &pb.Request{})
			wantCode(t, err, codes.Unavailable, h.address(0), `"db"`, "NOT_SERVING", "grpc.health.v1.Health/Watch")
		}
		if state := conn.GetState(); state != connectivity.TransientFailure {
			t.Errorf("the client is %v", state)
		}
		ctx, cancel := context.WithTimeout(testContext(t), 30*time.Millisecond)
		defer cancel()
		_, err := client.Unary(ctx, &pb.Request{}, grpc.WaitForReady(true))
		wantCode(t, err, codes.DeadlineExceeded, "NOT_SERVING")
		done := make(chan error, 1)
		go func() {
			_, err := client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("the call has not waited: %v", err)
		case <-waitAWhile():
		}
		checks.SetServingStatus("db", serving)
		wantNoError(t, <-done)
		if state := conn.GetState(); state != connectivity.Ready {
			t.Errorf("the client is %v", state)
		}
	})
}

func TestHealthOfANewSession(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		first, _ := h.newCheckedServer(0, serving)
		h.newCheckedServer(1, serving)
		conn := h.newConn(WithEndpoint(h.address(1)), checked)
		conn.Connect()
		h.readyAre(conn, true, true)
		first.Stop()
		h.readyAre(conn, false, true)
		_, checks := h.newCheckedServer(0, notServing)
		eventually(t, "a new session's answer", func() bool {
			err, _ := conn.balancer.endpoints[0].unhealthy()
			return err != nil
		})
		if a, b := callsTo(t, pb.NewTestClient(conn), 10); a != 0 || b != 10 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		checks.SetServingStatus("db", serving)
		h.readyAre(conn, true, true)
	})
}

func TestPrioritiesFailOverByHealth(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		_, checks := h.newCheckedServer(0, notServing)
		h.newCheckedServer(1, serving)
		conn := h.newConn(WithEndpoint(h.address(1), Priority(1)), checked)
		client := pb.NewTestClient(conn)
		if a, b := callsTo(t, client, 10); a != 0 || b != 10 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		checks.SetServingStatus("db", serving)
		h.readyAre(conn, true, true)
		if a, b := callsTo(t, client, 10); a != 10 || b != 0 {
			t.Fatalf("calls went %d to %d", a, b)
		}
	})
}

// scriptedHealth answers watches as a test wants.
type scriptedHealth struct {
	healthpb.UnimplementedHealthServer
	watches atomic.Int32
	watch   func(number int32, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error
}

func (s *scriptedHealth) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return s.watch(s.watches.Add(1), stream)
}

func serve(stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if err := stream.Send(&healthpb.HealthCheckResponse{Status: serving}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// One watch that breaks off, in whatever way, has calls wait; several have calls fail, until one is answered.
func TestWatchesThatBreakOffAreTriedAgain(t *testing.T) {
	for name, outcome := range map[string]error{"an error": status.Error(codes.Internal, "no database"), "OK": nil} {
		t.Run(name, func(t *testing.T) {
			overCarriers(t, func(t *testing.T, h *harness) {
				var mended atomic.Bool
				checks := &scriptedHealth{watch: func(number int32, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
					if mended.Load() {
						return serve(stream)
					}
					return outcome
				}}
				h.newServerWith(0, checks)
				client := pb.NewTestClient(h.newConn(checked))
				word := "no database"
				if outcome == nil {
					word = "OK"
				}
				_, err := client.Unary(testContext(t), &pb.Request{})
				wantCode(t, err, codes.Unavailable, "is unknown", word)
				if n := checks.watches.Load(); n != 2 {
					t.Errorf("the call failed after %d watches, want 2", n)
				}
				mended.Store(true)
				_, err = client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
				wantNoError(t, err)
			})
		})
	}
}

// A server that has answered and ends the watch is watched again; calls meanwhile wait and do not fail, however often it does so.
func TestAWatchThatEndsAfterAnAnswerFailsNoCall(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		end := make(chan struct{})
		checks := &scriptedHealth{watch: func(number int32, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
			if number > 2 {
				return serve(stream)
			}
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: serving}); err != nil {
				return err
			}
			<-end
			return status.Error(codes.Unavailable, "ended")
		}}
		h.newServerWith(0, checks)
		conn := h.newConn(checked)
		conn.Connect()
		for range 2 {
			h.readyAre(conn, true)
			end <- struct{}{}
			eventually(t, "the watch's end", func() bool { return conn.balancer.endpoints[0].ready() == nil })
			if state := conn.balancer.endpoints[0].state(); state != connectivity.Connecting {
				t.Errorf("the endpoint is %v", state)
			}
			_, err := pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{})
			wantNoError(t, err)
		}
	})
}

// The watch is no call of the program's: handlers, interceptors, loads and outlier detection don't see it. Credentials are sent, though.
func TestWatchesAreNoCallsOfThePrograms(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		var header shared[metadata.MD]
		var fails atomic.Bool
		checks := &scriptedHealth{watch: func(_ int32, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
			if fails.Load() {
				return status.Error(codes.Internal, "broken")
			}
			md, _ := metadata.FromIncomingContext(stream.Context())
			header.set(md)
			return serve(stream)
		}}
		fails.Store(true)
		h.newServerWith(0, checks)
		seen, events := &trace{}, &recorder{}
		conn := h.newConn(WithStreamInterceptor(seen.streamClient("a")), WithUnaryInterceptor(seen.unaryClient("a")), WithStatsHandler(events),
			WithPerRPCCredentials(&token{value: "Bearer all"}),
			WithDefaultServiceConfig(`{"healthCheckConfig": {"serviceName": ""}, "loadBalancingConfig": [{"outlier_detection_experimental": {
				"interval": "0.01s", "baseEjectionTime": "100s", "maxEjectionPercent": 100,
				"consecutiveFailureEjection": {"threshold": 1}, "childPolicy": [{"least_outstanding": {}}]}}]}`))
		conn.Connect()
		eventually(t, "failures", func() bool { return checks.watches.Load() > 2 })
		fails.Store(false)
		h.readyAre(conn, true)
		if _, ejected := conn.balancer.list.Returns(); ejected {
			t.Error("watches have the server ejected")
		}
		for range 20 { // The server reports its load a little later.
			if load := conn.balancer.endpoints[0].load(); load != 0 {
				t.Fatalf("the endpoint's load is %d", load)
			}
			time.Sleep(time.Millisecond)
		}
		wantValues(t, header.get(), "authorization", "Bearer all")
		seen.want(t)
		if got := events.take(); len(got) != 0 {
			t.Errorf("stats handlers have seen %q", got)
		}
	})
}

func TestPickFirstChecksNoHealth(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newCheckedServer(0, notServing)
		conn := h.newConn(WithDefaultServiceConfig(`{"healthCheckConfig": {"serviceName": "db"}}`))
		_, err := pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{})
		wantNoError(t, err)
		for _, config := range []string{`{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {}}`, `{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": null}`} {
			_, err = pb.NewTestClient(h.newConn(WithDefaultServiceConfig(config))).Unary(testContext(t), &pb.Request{})
			wantNoError(t, err)
		}
	})
}

// GracefulStop waits for calls: the client ends its watch.
func TestWatchesDoNotHoldUpAServer(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		server, _ := h.newCheckedServer(0, serving)
		conn := h.newConn(checked)
		conn.Connect()
		h.readyAre(conn, true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.GracefulStop()
		}()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("the server has not stopped")
		}
	})
}

// Streams under way at a server that serves no more go on, and Close ends watches in each state: overCarriers counts what is left.
func TestCloseEndsWatches(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		_, checks := h.newCheckedServer(0, serving)
		h.newServer(1, named("1"))
		h.newServerWith(2, &scriptedHealth{watch: func(int32, grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error { return errPlain }})
		h.newServerWith(3, &scriptedHealth{watch: func(_ int32, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
			<-stream.Context().Done()
			return nil
		}})
		conn := h.newConn(WithEndpoint(h.address(1), Priority(1)), WithEndpoint(h.address(2)), WithEndpoint(h.address(3)), checked)
		stream, err := pb.NewTestClient(conn).Bidi(testContext(t))
		wantNoError(t, err)
		wantNoError(t, stream.Send(&pb.Request{Text: "a"}))
		_, err = stream.Recv()
		wantNoError(t, err)
		checks.SetServingStatus("db", notServing)
		eventually(t, "the server's answer", func() bool { return conn.balancer.endpoints[0].ready() == nil })
		wantNoError(t, stream.Send(&pb.Request{Text: "b"}))
		reply, err := stream.Recv()
		wantNoError(t, err)
		if reply.Text != "b" {
			t.Errorf("got %q", reply.Text)
		}
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Error(err)
		}
		wantNoError(t, conn.Close())
	})
}
