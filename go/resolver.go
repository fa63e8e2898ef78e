package tollfree

import (
	"fmt"

	"google.golang.org/grpc/resolver"
)

func init() {
	resolver.Register(refusingResolver{schemePath})
	resolver.Register(refusingResolver{schemeAbstract})
}

// refusingResolver has grpc.NewClient's connections to shm: addresses fail with words that say what to write. Without it, grpc
// would look the address up in DNS.
type refusingResolver struct{ scheme string }

func (r refusingResolver) Scheme() string { return r.scheme }

func (refusingResolver) Build(target resolver.Target, _ resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	return nil, fmt.Errorf("grpc.NewClient speaks HTTP/2 and can't connect to %q: write tollfree.NewClient(%q), "+
		"or give grpc.NewClient tollfree.UnaryOver and tollfree.StreamOver as its last interceptors", target.URL.String(), target.URL.String())
}

// OverrideAuthority has grpc.NewClient take addresses without a host.
func (refusingResolver) OverrideAuthority(resolver.Target) string { return authority }
