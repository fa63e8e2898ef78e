package transport

import (
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
)

// quotaAllows says whether this process has a quota above one processor, or none.
var quotaAllows = sync.OnceValue(func() bool {
	groups, err := os.ReadFile("/proc/self/cgroup")
	return err != nil || quotaOf(string(groups), os.ReadFile) > 1
})

// quotaOf is how many processors the control groups of /proc/self/cgroup, and those around them, let a process have; many,
// where they don't say.
func quotaOf(groups string, read func(name string) ([]byte, error)) float64 {
	const many = 1 << 20
	least := float64(many)
	take := func(quota, period string) {
		q, err := strconv.ParseFloat(strings.TrimSpace(quota), 64)
		p, err2 := strconv.ParseFloat(strings.TrimSpace(period), 64)
		if err == nil && err2 == nil && q > 0 && p > 0 {
			least = min(least, q/p)
		}
	}
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			switch controllers := "," + parts[1] + ","; {
			case parts[1] == "":
				if text, err := read(path.Join("/sys/fs/cgroup", at, "cpu.max")); err == nil {
					if fields := strings.Fields(string(text)); len(fields) == 2 {
						take(fields[0], fields[1])
					}
				}
			case strings.Contains(controllers, ",cpu,"):
				quota, err := read(path.Join("/sys/fs/cgroup/cpu", at, "cpu.cfs_quota_us"))
				period, err2 := read(path.Join("/sys/fs/cgroup/cpu", at, "cpu.cfs_period_us"))
				if err == nil && err2 == nil {
					take(string(quota), string(period))
				}
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}
