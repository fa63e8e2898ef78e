package session

// A FIFO is a queue that keeps a little room for the next time it is used.
type FIFO[T any] struct {
	items []T
	head  int
}

// fifoRoomMax is for how many items an empty queue keeps room.
const fifoRoomMax = 64

// Len is how many items are in it.
func (f *FIFO[T]) Len() int { return len(f.items) - f.head }

// Push adds an item at the end.
func (f *FIFO[T]) Push(item T) { f.items = append(f.items, item) }

// First gives the oldest item. The caller has compared Len with 0.
func (f *FIFO[T]) First() *T { return &f.items[f.head] }

// Pop takes the oldest item out. The caller has compared Len with 0.
func (f *FIFO[T]) Pop() T {
	var none T
	item := f.items[f.head]
	f.items[f.head] = none
	f.head++
	switch {
	case f.head < len(f.items):
		if f.head >= fifoRoomMax && f.head > len(f.items)/2 {
			// A queue that is never empty stays short all the same.
			n := copy(f.items, f.items[f.head:])
			clear(f.items[n:])
			f.items, f.head = f.items[:n], 0
		}
	case cap(f.items) > fifoRoomMax:
		*f = FIFO[T]{}
	default:
		f.items, f.head = f.items[:0], 0
	}
	return item
}

// All are the items, oldest first, to be changed where they are.
func (f *FIFO[T]) All() []T { return f.items[f.head:] }

// Keep drops the items of which keep does not hold.
func (f *FIFO[T]) Keep(keep func(T) bool) {
	kept := FIFO[T]{}
	for _, item := range f.All() {
		if keep(item) {
			kept.Push(item)
		}
	}
	*f = kept
}
