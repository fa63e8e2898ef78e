//go:build !interop

package steps

// Pass notes that a step was passed.
func Pass(Step) {}
