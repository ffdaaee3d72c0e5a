// Package mix makes traffic from a description of it: who sends how much, when, and what
// the requests look like.
//
// A [Mix] is read from a YAML file, or is one of those that the package brings along
// (see [Names]). A [Source] makes its requests one after the other, in the order of time,
// for whoever sends or counts them; [Write] writes them as a log.
//
// # Files
//
//	seed: 7                      # 1
//	start: 2026-03-01T00:00:00Z  # 2026-01-01T00:00:00Z
//	duration: 1h                 # required
//	requests: 1000000            # end after so many; no bound
//	components:                  # required
//	- name: visitors             # required, of its own
//	  zipf: {clients: 10_000, rate: 500/s, exponent: 1.1}
//	  from: 10m                  # since the start; 0
//	  to: 50m                    # the duration of the whole
//	  attack: false              # meant to be refused; depends on the kind
//	  addresses: [192.0.2.0/24]  # a part of 10.0.0.0/8 that no other component has
//	  clients_of: crawlers       # the clients of another component, instead of addresses
//	  diurnal: {depth: 0.6, period: 24h, peak: 20h}
//	  request: {hosts: [example.com], methods: [GET], paths: [/], status: 200, user_agents: [curl/8.5.0]}
//
// Behind the # is what holds without the key. A component is of one kind:
//
//   - steady: {clients, rate, poisson: false}. Every client sends at the rate, spaced
//     evenly or, with poisson, at random times.
//   - zipf: {clients, rate, exponent, offset: 0}. All together send at the rate, at random
//     times; the rth busiest has a share like (r+offset)^−exponent.
//   - pages: {clients, think: 30s, load: 2s, assets: 10}. Every client loads a page, a
//     burst of assets with it, and thinks. think, load and assets are means. The key
//     assets of request lists their paths.
//   - flash_crowd: {clients, rate, ramp, hold, decay}. Together the clients send at a rate
//     that rises, stays, and falls.
//   - boundary: {clients, requests, period, width: a tenth of the period, every: 2}. Every
//     client sends so many requests, spaced evenly over the width, half of them before
//     an edge of the period's windows, half from it on; at every second edge. With twice a
//     threshold as requests, no window has more than the threshold.
//     Windows are those of the mix's time or, if it is sent as fast as it is, of the clock.
//   - on_off: {clients, rate, on, off}. Every client sends evenly at the rate, pauses, and
//     so on, each beginning at a time of its own.
//   - botnet: {clients, rate, spread: 0.1}. Every client sends evenly at a rate of its
//     own, below the given one by at most the spread.
//   - guessing: {clients, rate}. Every client sends at the rate, at random times; unless
//     request says otherwise, POST /login, which the origin answers with 401.
//   - random_keys: {rate}. Every request has another client.
//
// Durations are whole numbers with the units d, h, m, s and ms. Rates are a number of
// requests per duration: 50/1m, 2_000/s. diurnal lets the rate swing around its average, by
// the depth; at the peak, counted from midnight UTC, it is highest. The times of the
// requests are bent to it, and none is added or left out; a boundary burst cannot be bent
// and is sometimes left out. Every IPv6 client has a /64 of its own.
//
// # Always the same
//
// The same file and seed make the same requests, with every version of Go. For this, random
// numbers come from a generator written out here, and all that is computed for a request is
// computed in integers. Shares of clients and profiles of rates are set up by package math, whose
// last bits may differ between processor architectures: there a request in some billions may have
// another client. When a component sends depends on its own name and keys
// and on the seed: others may be added or removed, and change at most the numbers of
// clients and the addresses that are not written out. What [Write] writes may still
// differ from one version of this package to another; the change log says where it does.
//
// # The published analysis
//
// The mix cloudflare is a day of 400 million requests from 270,000 sources under which the
// weighted estimate, at 50 requests a minute, is as accurate as Cloudflare published of
// as much traffic. Its file says what must hold for that. In short: 0.003% of wrong
// decisions needs traffic with hardly anybody near the threshold, and a mean difference
// of 6% is what many clients with a few requests a period make of it, whatever the
// threshold.
package mix
