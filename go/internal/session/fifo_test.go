package session

import "testing"

func TestAFIFOGivesItemsInOrder(t *testing.T) {
	var queue FIFO[int]
	next, want := 0, 0
	for round := range 300 {
		for range round % 7 * 3 {
			queue.Push(next)
			next++
		}
		for n := round % 5 * 4; n > 0 && queue.Len() > 0; n-- {
			if *queue.First() != want || queue.Pop() != want {
				t.Fatalf("not item %d", want)
			}
			want++
		}
		if queue.Len() != next-want || len(queue.All()) != queue.Len() {
			t.Fatalf("%d items are in it, not %d", queue.Len(), next-want)
		}
	}
	queue.Keep(func(item int) bool { return item%2 == 0 })
	for queue.Len() > 0 {
		if item := queue.Pop(); item%2 != 0 {
			t.Errorf("item %d was to be dropped", item)
		}
	}
	if cap(queue.items) > fifoRoomMax {
		t.Errorf("an empty queue keeps room for %d", cap(queue.items))
	}
}
