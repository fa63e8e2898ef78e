//go:build !race

package tollfree

// raceDetector says whether the race detector is there.
const raceDetector = false
