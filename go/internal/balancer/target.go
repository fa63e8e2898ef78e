package balancer

import "math"

// A Target is an endpoint as its source describes it.
type Target struct {
	// Address is where it is. An endpoint whose address is in the next list too stays the same endpoint.
	Address string
	// Weight is its share of the calls, beside those of the others of its priority and locality. An endpoint of weight 0 gets none.
	Weight uint32
	// Unhealthy is its source's word: it gets no calls.
	Unhealthy bool
	// Priority is 0 for the highest.
	Priority uint32
	// Locality is where it stands; nil: its source does not say.
	Locality *Locality
}

// A Locality is a place with endpoints that share its weight. Those of one name and priority are of one locality.
type Locality struct {
	Name string
	// Weight is its share of the calls, beside the other localities of its priority.
	Weight uint32
}

// NewTarget is a healthy endpoint of weight 1 and the highest priority.
func NewTarget(address string) Target { return Target{Address: address, Weight: 1} }

// usable says whether its source allows calls there at all.
func (t *Target) usable() bool {
	return !t.Unhealthy && t.Weight > 0 && (t.Locality == nil || t.Locality.Weight > 0)
}

// scale is the largest share where weights have to be divided: to a precision of one in a million.
const scale = 1_000_000

// shares are those of each endpoint of one priority in its calls; 0 for those that get none.
func shares(targets []*Target) []uint32 {
	sums := map[string]float64{}
	for _, t := range targets {
		if t.usable() && t.Locality != nil {
			sums[t.Locality.Name] += float64(t.Weight)
		}
	}
	exact := make([]float64, len(targets))
	whole, largest := true, 0.0
	for i, t := range targets {
		switch {
		case !t.usable():
		case t.Locality == nil:
			// Endpoints without one are together as heavy as their weights say.
			exact[i] = float64(t.Weight)
		default:
			exact[i] = float64(t.Locality.Weight) * (float64(t.Weight) / sums[t.Locality.Name])
		}
		whole = whole && exact[i] == math.Trunc(exact[i])
		largest = max(largest, exact[i])
	}
	by := 1.0
	if !whole {
		by = scale / largest
	}
	all := make([]uint32, len(targets))
	for i, share := range exact {
		if share > 0 {
			all[i] = max(uint32(math.Round(share*by)), 1)
		}
	}
	return all
}
