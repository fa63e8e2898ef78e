package pool

import "testing"

// What tests of packages that use this one need of its tests.

// NewCoordinator is where a pool is coordinated until the test ends.
func NewCoordinator(t *testing.T) (address string) { return newCoordinator(t).address() }

// JoinFor joins until the test ends, which fails if something is held then.
func JoinFor(t *testing.T, address string) *Pool { return memberAt(t, address) }
