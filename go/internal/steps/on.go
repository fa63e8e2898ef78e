//go:build interop

package steps

import "sync/atomic"

var hook atomic.Pointer[func(Step)]

// Pass notes that a step was passed.
func Pass(step Step) {
	if passed := hook.Load(); passed != nil {
		(*passed)(step)
	}
}

// Watch has passed called at each step from now on, on the goroutine that passes it, which may hold locks; nil: nothing is called.
func Watch(passed func(Step)) {
	if passed == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&passed)
}
