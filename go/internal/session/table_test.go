package session

import (
	"math/rand/v2"
	"testing"
)

func TestATableFindsWhatIsInIt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var found table
	in := map[uint64]*Stream{}
	for id := uint64(1); id < 3000; id++ {
		st := &Stream{id: id}
		found.add(st)
		in[id] = st
		for gone, st := range in {
			if random.IntN(3) == 0 {
				found.remove(st)
				found.remove(st)
				delete(in, gone)
			}
			break
		}
		if random.IntN(50) == 0 {
			found.each(func(st *Stream) {
				if st.id%2 == 0 {
					found.remove(st)
					delete(in, st.id)
				}
			})
		}
		if found.count != len(in) {
			t.Fatalf("%d are in it, not %d", found.count, len(in))
		}
		for look := id - min(id, 40); look <= id+1; look++ {
			if found.get(look) != in[look] {
				t.Fatalf("stream %d", look)
			}
		}
	}
}
