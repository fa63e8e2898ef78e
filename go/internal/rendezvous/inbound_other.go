//go:build !linux || tollfree_elsewhere

package rendezvous

import "github.com/tollfree/tollfree/go/internal/system"

// inbound stands for the room of Linux's.
type inbound struct{ bytes [512]byte }

func (*inbound) receive(int, []byte) (n int, fds []int, truncated bool, err error) {
	return 0, nil, false, system.ErrUnsupported
}
