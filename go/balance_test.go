package tollfree

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func (h *harness) connected(conn *ClientConn, count int) {
	h.t.Helper()
	conn.Connect()
	for range 1000 {
		ready := 0
		for _, e := range conn.balancer.endpoints {
			if e.ready() != nil {
				ready++
			}
		}
		if ready >= count {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.t.Fatalf("never: %d sessions", count)
}

func TestWeightsOfEndpoints(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, named("0"))
		h.newServer(1, named("1"))
		conn := h.newConn(WithEndpoint(h.address(1), Weight(3)), WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
		h.connected(conn, 2)
		if a, b := callsTo(t, pb.NewTestClient(conn), 40); a != 10 || b != 30 {
			t.Errorf("calls went %d to %d, by weights of 1 and 3", a, b)
		}
	})
}

func TestPrioritiesFailOverAndGoBack(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		first := h.newServer(0, named("0"))
		h.newServer(1, named("1"))
		conn := h.newConn(WithEndpoint(h.address(1), Priority(1)), WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
		client := pb.NewTestClient(conn)
		if a, b := callsTo(t, client, 10); a != 10 || b != 0 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		if state := conn.balancer.endpoints[1].state(); state != connectivity.Idle {
			t.Errorf("the endpoint of the lower priority is %v before it is needed", state)
		}
		first.Stop()
		eventually(t, "the end of a session", func() bool { return conn.balancer.endpoints[0].ready() == nil })
		if a, b := callsTo(t, client, 10); a != 0 || b != 10 {
			t.Fatalf("calls went %d to %d", a, b)
		}
		h.newServer(0, named("0"))
		eventually(t, "a new session", func() bool { return conn.balancer.endpoints[0].ready() != nil })
		if a, b := callsTo(t, client, 10); a != 10 || b != 0 {
			t.Fatalf("calls went %d to %d", a, b)
		}
	})
}

// Both kinds of calls count: those that go the short way, and those that options have go the long way.
func TestOutliersAreEjectedAndReturn(t *testing.T) {
	for _, options := range [][]grpc.CallOption{nil, {grpc.WaitForReady(false)}} {
		overCarriers(t, func(t *testing.T, h *harness) {
			var broken shared[bool]
			broken.set(true)
			h.newServer(0, &testService{unary: func(context.Context, *pb.Request) (*pb.Reply, error) {
				if broken.get() {
					return nil, status.Error(codes.Internal, "broken")
				}
				return &pb.Reply{Text: "0"}, nil
			}})
			h.newServer(1, named("1"))
			conn := h.newConn(WithEndpoint(h.address(1)), WithDefaultServiceConfig(`{"loadBalancingConfig": [{"outlier_detection_experimental": {
				"interval": "0.02s", "baseEjectionTime": "0.3s", "maxEjectionPercent": 50,
				"consecutiveFailureEjection": {"threshold": 3}, "childPolicy": [{"round_robin": {}}]}}]}`))
			h.connected(conn, 2)
			client := pb.NewTestClient(conn)
			failures := 0
			for range 20 {
				if _, err := client.Unary(testContext(t), &pb.Request{}, options...); err != nil {
					failures++
				}
			}
			if failures != 3 {
				t.Errorf("%d calls failed before the server was ejected, of 3", failures)
			}
			broken.set(false)
			eventually(t, "the server's return", func() bool {
				reply, err := client.Unary(testContext(t), &pb.Request{}, options...)
				return err == nil && reply.Text == "0"
			})
		})
	}
}

func TestCallsWaitUntilAnEjectionEnds(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		calls := 0
		h.newServer(0, &testService{unary: func(context.Context, *pb.Request) (*pb.Reply, error) {
			if calls++; calls == 1 {
				return nil, status.Error(codes.Internal, "broken")
			}
			return &pb.Reply{}, nil
		}})
		client := pb.NewTestClient(h.newConn(WithDefaultServiceConfig(`{"loadBalancingConfig": [{"outlier_detection_experimental": {
			"interval": "0.01s", "baseEjectionTime": "0.2s", "maxEjectionPercent": 100,
			"consecutiveFailureEjection": {"threshold": 1}, "childPolicy": [{"round_robin": {}}]}}]}`)))
		_, err := client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Internal)
		_, err = client.Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable, "outlier detection")
		_, err = client.Unary(testContext(t), &pb.Request{}, grpc.WaitForReady(true))
		wantNoError(t, err)
	})
}

func TestServersThatNoCallMayUse(t *testing.T) {
	overCarriers(t, func(t *testing.T, h *harness) {
		h.newServer(0, named("0"))
		conn, err := NewClient(h.address(1), append(h.carrier.client(h), WithEndpoint(h.address(0), Weight(0)),
			WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))...)
		wantNoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = pb.NewTestClient(conn).Unary(testContext(t), &pb.Request{})
		wantCode(t, err, codes.Unavailable, h.address(1))
	})
}

func TestOutlierDetectionIsReadAsA50NamesIt(t *testing.T) {
	read := func(inner string) (*serviceConfig, error) {
		return parseServiceConfig(`{"loadBalancingConfig": [{"unknown": {}}, {"outlier_detection_experimental": {` + inner + `}}]}`)
	}
	config, err := read(`"interval": "1.5s", "baseEjectionTime": "2s", "maxEjectionTime": "3s", "maxEjectionPercent": 50,
		"successRateEjection": {"stdevFactor": 1, "enforcementPercentage": 2, "minimumHosts": 3, "requestVolume": 4},
		"failurePercentageEjection": {"threshold": 5, "enforcementPercentage": 6, "minimumHosts": 7, "requestVolume": 8},
		"consecutiveFailureEjection": {"threshold": 9, "enforcementPercentage": 10},
		"childPolicy": [{"least_outstanding": {}}]`)
	wantNoError(t, err)
	want := &rules.OutlierDetection{
		Interval: 1500 * time.Millisecond, BaseEjectionTime: 2 * time.Second, MaxEjectionTime: 3 * time.Second, MaxEjectionPercent: 50,
		SuccessRate:         &rules.SuccessRateEjection{StdevFactor: 1, EnforcementPercentage: 2, MinimumHosts: 3, RequestVolume: 4},
		FailurePercentage:   &rules.FailurePercentageEjection{Threshold: 5, EnforcementPercentage: 6, MinimumHosts: 7, RequestVolume: 8},
		ConsecutiveFailures: &rules.ConsecutiveFailureEjection{Threshold: 9, EnforcementPercentage: 10},
	}
	if !reflect.DeepEqual(config.outliers, want) || config.balance != rules.LeastOutstanding {
		t.Errorf("got %+v", config.outliers)
	}
	config, err = read(`"successRateEjection": {}, "childPolicy": [{"round_robin": {}}]`)
	wantNoError(t, err)
	rate := rules.DefaultSuccessRate()
	if d := rules.DefaultOutlierDetection(); config.outliers.Interval != d.Interval || *config.outliers.SuccessRate != rate {
		t.Errorf("got %+v", config.outliers)
	}
	for inner, word := range map[string]string{
		``:                                 "childPolicy",
		`"childPolicy": [{"strange": {}}]`: "strange",
		`"childPolicy": [{"outlier_detection_experimental": {}}]`:                                    "childPolicy",
		`"interval": "1", "childPolicy": [{"round_robin": {}}]`:                                      "interval",
		`"maxEjectionPercent": 101, "childPolicy": [{"round_robin": {}}]`:                            "maxEjectionPercent",
		`"consecutiveFailureEjection": {"threshold": -1}, "childPolicy": [{"round_robin": {}}]`:      "threshold",
		`"failurePercentageEjection": {"threshold": 200}, "childPolicy": [{"round_robin": {}}]`:      "failurePercentageEjection.threshold",
		`"successRateEjection": {"enforcementPercentage": 101}, "childPolicy": [{"pick_first": {}}]`: "successRateEjection.enforcementPercentage",
	} {
		_, err := read(inner)
		if err == nil {
			t.Errorf("no error for %s", inner)
			continue
		}
		wantCode(t, status.Error(codes.Unknown, fmt.Sprint(err)), codes.Unknown, word)
	}
}
