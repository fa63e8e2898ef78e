package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tollfree/tollfree/go/cmd/tollfree-demo/greeter"
)

// warmUp is how long calls are made before the timing begins.
const warmUp = 300 * time.Millisecond

// timed makes one call after the other, and gives the median.
func timed(ctx context.Context, out io.Writer, client greeter.GreeterClient, measure time.Duration) (time.Duration, error) {
	request := &greeter.GreetRequest{Name: "Ada"}
	var took []time.Duration
	for begun := time.Now(); ; {
		before := time.Now()
		if _, err := client.Greet(ctx, request); err != nil {
			return 0, err
		}
		after := time.Now()
		switch all := after.Sub(begun); {
		case all >= warmUp+measure:
			if len(took) == 0 {
				return 0, fmt.Errorf("no call has ended within %v", measure)
			}
			slices.Sort(took)
			p50, p99 := took[len(took)/2], took[len(took)*99/100]
			fmt.Fprintf(out, "   %d calls of Greet, one after the other: p50 %v, p99 %v\n", len(took), p50, p99)
			return p50, nil
		case all >= warmUp:
			took = append(took, after.Sub(before))
		}
	}
}
