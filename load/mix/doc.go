// Package mix generates traffic from a description of its clients: how much they send, when, and
// what their requests look like.
//
// A [Mix] is read from a YAML file, or bundled with the package (see [Names]). A [Source]
// generates its requests one by one, in chronological order. [Write] writes them as a log.
//
// # Files
//
//	seed: 7                      # 1
//	start: 2026-03-01T00:00:00Z  # 2026-01-01T00:00:00Z
//	duration: 1h                 # required
//	requests: 1000000            # maximum number of requests; unlimited
//	components:                  # required
//	- name: visitors             # required, unique
//	  zipf: {clients: 10_000, rate: 500/s, exponent: 1.1}
//	  from: 10m                  # since the start; 0
//	  to: 50m                    # the duration of the mix
//	  attack: false              # meant to be refused; depends on the kind
//	  addresses: [192.0.2.0/24]  # a part of 10.0.0.0/8 that no other component uses
//	  diurnal: {depth: 0.6, period: 24h, peak: 20h}
//	  request: {hosts: [example.com], methods: [GET], paths: [/], status: 200, user_agents: [curl/8.5.0]}
//
// The comments give the defaults. A component has one kind:
//
//   - steady: {clients, rate, poisson: false}. Every client sends at the rate, spaced
//     evenly or, with poisson, at random times.
//   - zipf: {clients, rate, exponent, offset: 0}. Together, the clients send at the rate, at
//     random times; the share of the rth busiest is proportional to (r+offset)^−exponent.
//   - pages: {clients, think: 30s, load: 2s, assets: 10}. Every client loads a page with a
//     burst of assets, then thinks. think, load and assets are means. The key assets of
//     request lists the paths of the assets.
//   - flash_crowd: {clients, rate, ramp, hold, decay}. Together, the clients send at a rate
//     that rises, holds, and falls.
//   - boundary: {clients, requests, period, width: a tenth of the period, every: 2}. At every
//     second boundary of the period's windows, every client sends this many requests, spaced
//     evenly over the width, half before the boundary and half after it. If requests is twice a
//     threshold, no window exceeds the threshold. Windows are aligned with the time of the mix
//     or, if it is sent in real time, with the clock.
//   - on_off: {clients, rate, on, off}. Every client sends evenly at the rate, pauses, and
//     repeats, each with its own phase.
//   - botnet: {clients, rate, spread: 0.1}. Every client sends evenly at its own rate, which is
//     below the given one by at most the spread.
//   - spread: {clients, rate, networks, requests: 1, prefix: 24, shared: 0}. The clients are
//     distributed evenly over many networks of this prefix length. They take turns sending, at
//     random times and together at the rate, until each has sent this many requests. The
//     networks are drawn at random from the addresses of the component, by default 10.0.0.0/8
//     or, for a prefix above 32, 2001:db8::/32. shared is the fraction of networks that are
//     those of random legitimate clients, that is, clients of components that are not attacks.
//     The other networks contain no legitimate client. An attacker in a shared network has its
//     own address, unless the prefix is 32, or 64 for IPv6: then it has the legitimate client's,
//     as behind a carrier's NAT, and there may be more clients than addresses.
//   - guessing: {clients, rate}. Every client sends at the rate, at random times; by default
//     POST /login, which the origin answers with 401.
//   - random_keys: {rate}. Every request has a different client.
//
// Durations are whole numbers with the units d, h, m, s and ms. Rates are a number of
// requests per duration: 50/1m, 2_000/s. With diurnal the rate swings around its average by
// the depth, with the peak at the given time after midnight UTC. This moves requests but neither
// adds nor removes any. Boundary bursts cannot be moved. Every IPv6 client has its own /64.
//
// # Over a log
//
// An [Overlay] adds the attacks of a mix to a log. The log's clients are then the legitimate ones and
// determine the shared networks. A mix that has only attacks is made for this; by itself it shares
// no networks.
//
// # Reproducibility
//
// The same file and seed generate the same requests. Results of package math may differ in their last bits between
// processor architectures, so one request in several million may be a microsecond off. The times of
// a component depend only on its own name and keys and on the seed: adding or removing other
// components changes at most the clients' numbers and the addresses that the file does not
// give. The output of [Write] may change between versions of this package; see the change log.
//
// # The published analysis
//
// The mix cloudflare is a day of 400 million requests from 270,000 sources. With it the
// weighted estimate, at 50 requests a minute, is as accurate as Cloudflare reported for the same
// amount of traffic. Its file explains what that requires. In short: an error rate of 0.003%
// requires traffic with hardly any client near the threshold, and a mean difference of 6% results
// from many clients with a few requests per period, at any threshold.
package mix
