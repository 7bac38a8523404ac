package dispatch

import (
	"golang.org/x/time/rate"

	"github.com/surehook/surehook"
)

// share is this node's part of an endpoint's cap: the whole where it is alone,
// else an equal part, rounded down. Where that is nothing, the endpoint's home
// node has the whole cap and the others none. So the cap holds over all nodes,
// but for the seconds in which they learn of one that came or went.
func share(lease *surehook.Lease, endpoint int64, limit int) int {
	n := len(lease.Nodes)
	if n <= 1 {
		return limit
	}
	if limit >= n {
		return limit / n
	}
	if home(lease.Nodes, endpoint) == lease.Epoch {
		return limit
	}
	return 0
}

// home is the node that an endpoint falls to: the one with the highest hash, so
// that few endpoints move when a node comes or goes.
func home(nodes []int64, endpoint int64) int64 {
	var best uint64
	var out int64
	for _, n := range nodes {
		if h := mix(uint64(n)*0x9e3779b97f4a7c15 ^ uint64(endpoint)); h >= best {
			best, out = h, n
		}
	}
	return out
}

// mix is the finaliser of SplitMix64: every bit of v moves every bit of it.
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// cap is what this node may have in flight at the endpoint: nothing while it is
// paused, and never anything where events are pulled. Callers hold mu.
func (l *lane) cap() int {
	if l.route.Limits.Paused || l.route.Pulled() {
		return 0
	}
	lease := l.d.store.Lease()
	return share(&lease, l.key, l.route.concurrency)
}

// mine tells whether this node sends to the endpoint at all.
func (l *lane) mine() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cap() > 0
}

// atRate sets the limiter to this node's part of the endpoint's rate. Where one
// node has the whole cap it has the whole rate. Callers hold mu.
func (l *lane) atRate() {
	perSecond := l.route.Limits.Rate
	if n := len(l.d.store.Lease().Nodes); n > 1 && l.route.concurrency >= n {
		perSecond /= float64(n)
	}
	if l.limiter.Limit() != rate.Limit(perSecond) {
		l.limiter.SetLimit(rate.Limit(perSecond))
		l.limiter.SetBurst(burst(perSecond))
	}
}

func burst(perSecond float64) int { return max(int(perSecond), 1) }
