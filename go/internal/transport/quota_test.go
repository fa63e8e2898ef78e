package transport

import (
	"os"
	"testing"
)

func TestTheLeastQuotaCounts(t *testing.T) {
	files := map[string]string{
		"/sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "/sys/fs/cgroup/a/cpu.max": "50000 100000\n",
		"/sys/fs/cgroup/c/cpu.max": "400000 100000\n", "/sys/fs/cgroup/cpu/d/cpu.cfs_quota_us": "-1\n",
		"/sys/fs/cgroup/cpu/d/cpu.cfs_period_us": "100000\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
		"/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
	}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	for groups, want := range map[string]float64{
		"0::/a/b\n": 0.5, "0::/c\n": 4, "0::/\n": 1 << 20, "": 1 << 20, "3:cpuset:/\n2:cpu,cpuacct:/d\n": 1.5, "nonsense\n": 1 << 20,
	} {
		if got := quotaOf(groups, read); got != want {
			t.Errorf("%q: %v, not %v", groups, got, want)
		}
	}
}
