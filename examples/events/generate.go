//go:build ignore

// Generate writes the example events: always the same ones.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

var (
	rng   = rand.New(rand.NewPCG(20260114, 7))
	clock = time.Date(2026, 1, 14, 8, 0, 0, 0, time.UTC)
)

func main() {
	write("payments", 40, payments)
	write("orders", 40, orders)
	write("mail", 36, mail)
	write("ci", 32, ci)
	write("users", 28, users)
	write("shipping", 28, shipping)
	write("devices", 12, devices)
	writeLines("awkward", awkward())
}

func write(name string, n int, event func(i int) string) {
	lines := make([]string, n)
	for i := range lines {
		clock = clock.Add(time.Duration(2+rng.IntN(90)) * time.Second)
		lines[i] = event(i)
	}
	writeLines(name, lines)
}

func writeLines(name string, lines []string) {
	for i, l := range lines {
		if !json.Valid([]byte(l)) || strings.ContainsAny(l, "\r\n") {
			panic(fmt.Sprintf("%s line %d isn't one JSON value on one line", name, i+1))
		}
	}
	if err := os.WriteFile(name+".jsonl", []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		panic(err)
	}
}

// event makes a line; data is JSON and stays as it is written here.
func event(typ, tenant, subject, data string) string {
	return fmt.Sprintf(`{"type":%q,"tenant_id":%q,"subjects":[%q],"occurred_at":%q,"data":%s}`, typ, tenant, subject, clock.Format(time.RFC3339), data)
}

func pick[T any](from ...T) T { return from[rng.IntN(len(from))] }

func token(n int) string {
	const letters = "0123456789abcdefghijkmnpqrstuvwxyz"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return string(b)
}

func hex(n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%08x", rng.Uint32())
	}
	return b.String()[:n]
}

type person struct{ name, mail, city, country, street, post string }

func someone() person {
	return pick(
		person{"Amélie Dubois", "amelie.dubois@example.fr", "Lyon", "FR", "14 rue de la République", "69002"},
		person{"Jürgen Groß", "j.gross@example.de", "Köln", "DE", "Venloer Straße 231", "50823"},
		person{"佐藤 美咲", "misaki.sato@example.jp", "横浜市", "JP", "西区みなとみらい2-3-1", "220-0012"},
		person{"Siobhán O'Neill", "siobhan@example.ie", "Galway", "IE", "3 Quay Street", "H91 F6PW"},
		person{"Łukasz Wójcik", "lukasz.wojcik@example.pl", "Łódź", "PL", "ul. Piotrkowska 104", "90-926"},
		person{"Nguyễn Thị Hương", "huong.nguyen@example.vn", "Đà Nẵng", "VN", "22 Bạch Đằng", "550000"},
		person{"Maria da Conceição", "mc@example.pt", "Évora", "PT", "Rua 5 de Outubro 8", "7000-854"},
		person{"Ahmed El-Sayed", "ahmed@example.eg", "الإسكندرية", "EG", "شارع فؤاد 40", "21131"},
		person{"Grace Adeyemi", "grace.adeyemi@example.ng", "Ìbàdàn", "NG", "7 Ring Road", "200273"},
		person{"Sam Taylor", "sam.taylor@example.com", "Portland", "US", "905 SE Ash St", "97214"})
}

func tenant() string { return pick("acme", "globex", "initech", "hooli") }

func payments(i int) string {
	p, ten := someone(), tenant()
	id, amount, cur := "pi_"+token(24), 199+rng.IntN(250_000), pick("eur", "usd", "gbp", "jpy", "pln")
	typ := []string{"payment.succeeded", "payment.succeeded", "payment.failed", "payment.refunded", "invoice.paid", "payout.created"}[i%6]
	subject := "payment:" + id
	switch typ {
	case "payment.failed":
		return event(typ, ten, subject, fmt.Sprintf(`{"id":%q,"object":"payment_intent","amount":%d,"currency":%q,"status":"requires_payment_method","last_payment_error":{"code":"card_declined","decline_code":%q,"message":"Your card was declined."},"created":%d,"livemode":true}`,
			id, amount, cur, pick("insufficient_funds", "expired_card", "do_not_honor"), clock.Unix()))
	case "payment.refunded":
		return event(typ, ten, subject, fmt.Sprintf(`{"id":"re_%s","object":"refund","amount":%d,"payment_intent":%q,"currency":%q,"reason":%q,"status":"succeeded","metadata":{}}`,
			token(24), amount, id, cur, pick("requested_by_customer", "duplicate", "fraudulent")))
	case "invoice.paid":
		return event(typ, ten, "customer:"+token(10), fmt.Sprintf(`{"id":"in_%s","number":"%s-%04d","customer":{"name":%q,"email":%q},"lines":[{"description":"Team plan × %d","quantity":%d,"unit_amount":1200,"tax_rates":[{"percentage":%s}]}],"total":%d,"currency":%q,"paid_at":%q}`,
			token(24), strings.ToUpper(token(6)), i, p.name, p.mail, 3+i%5, 3+i%5, pick("19.0", "20", "25.5", "0"), amount, cur, clock.Format(time.RFC3339Nano)))
	case "payout.created":
		return event(typ, ten, "payout:"+token(8), fmt.Sprintf(`{"id":"po_%s","amount":%d,"currency":%q,"arrival_date":%d,"destination":{"bank":"%s","last4":"%04d"},"balance_transactions":[%s]}`,
			token(24), amount*40, cur, clock.Add(48*time.Hour).Unix(), pick("BNP Paribas", "Sparkasse KölnBonn", "三井住友銀行"), rng.IntN(10_000), transactions()))
	}
	return event(typ, ten, subject, fmt.Sprintf(`{"id":%q,"object":"payment_intent","amount":%d,"amount_received":%d,"currency":%q,"status":"succeeded","charges":{"data":[{"id":"ch_%s","paid":true,"billing_details":{"name":%q,"email":%q,"address":{"line1":%q,"city":%q,"postal_code":%q,"country":%q}},"payment_method_details":{"type":"card","card":{"brand":%q,"last4":"%04d","exp_month":%d,"exp_year":2029}}}]},"created":%d,"livemode":true}`,
		id, amount, amount, cur, token(24), p.name, p.mail, p.street, p.city, p.post, p.country, pick("visa", "mastercard", "amex"), rng.IntN(10_000), 1+rng.IntN(12), clock.Unix()))
}

func transactions() string {
	parts := make([]string, 2+rng.IntN(5))
	for i := range parts {
		parts[i] = fmt.Sprintf(`{"id":"txn_%s","net":%d,"fee":%d}`, token(16), 500+rng.IntN(90_000), 20+rng.IntN(900))
	}
	return strings.Join(parts, ",")
}

func orders(i int) string {
	p, ten := someone(), tenant()
	number := fmt.Sprintf("%d", 100_200+i)
	typ := []string{"order.created", "order.created", "order.paid", "order.cancelled", "cart.abandoned"}[i%5]
	var items []string
	var total float64
	for range 1 + rng.IntN(4) {
		price, n := float64(399+rng.IntN(20_000))/100, 1+rng.IntN(3)
		total += price * float64(n)
		items = append(items, fmt.Sprintf(`{"sku":"%s-%03d","title":%q,"quantity":%d,"price":"%.2f","options":[["size",%q],["gift_wrap",%t]]}`,
			strings.ToUpper(token(4)), rng.IntN(1000), pick("Espresso cups, set of 4", "Wool scarf “Fjord”", "USB-C cable 2 m", "抹茶セット", "Moleskine — dotted, A5", "Kids' rain boots", "Ceramic planter Ø 18 cm"), n, price, pick("S", "M", "L", "one size"), rng.IntN(4) == 0))
	}
	note := ""
	if i%7 == 3 {
		note = pick(`,"note":"Please ring twice 🔔🔔 — the bell is <loose> & old"`, `,"note":"Leave it with the neighbour (\"Frau Groß\"), thanks! 🙏🏽"`)
	}
	extra := ""
	switch typ {
	case "order.cancelled":
		extra = fmt.Sprintf(`,"cancelled_at":%q,"cancel_reason":%q`, clock.Format(time.RFC3339), pick("customer", "inventory", "fraud"))
	case "cart.abandoned":
		extra = fmt.Sprintf(`,"recovery":{"emails_sent":%d,"last_seen_s":%d}`, rng.IntN(3), 600+rng.IntN(9000))
	}
	return event(typ, ten, "order:"+number, fmt.Sprintf(`{"order_number":%q,"currency":%q,"total":"%.2f","customer":{"name":%q,"email":%q,"locale":%q},"shipping_address":{"street":%q,"city":%q,"zip":%q,"country":%q},"line_items":[%s],"discounts":%s%s%s}`,
		number, pick("EUR", "USD", "JPY"), total, p.name, p.mail, pick("fr-FR", "de-DE", "en-IE", "ja-JP"), p.street, p.city, p.post, p.country, strings.Join(items, ","), pick(`[]`, `[{"code":"WELCOME10","percent":10}]`, `null`), note, extra))
}

func mail(i int) string {
	p := someone()
	typ := []string{"mail.delivered", "mail.opened", "mail.bounced", "mail.clicked"}[i%4]
	id := fmt.Sprintf("<%s@mail.example.com>", hex(20))
	extra := ""
	switch typ {
	case "mail.opened":
		extra = fmt.Sprintf(`,"client":{"user_agent":%q,"ip":"203.0.113.%d"}`, pick("Mozilla/5.0 (iPhone; CPU iPhone OS 18_2 like Mac OS X) AppleWebKit/605.1.15", "Mozilla/5.0 (X11; Linux x86_64; rv:134.0) Gecko/20100101 Thunderbird/134.0"), 1+rng.IntN(250))
	case "mail.bounced":
		extra = fmt.Sprintf(`,"bounce":{"type":"permanent","smtp_code":550,"diagnostic":"smtp; 550 5.1.1 <%s>: Recipient address rejected: User unknown in virtual mailbox table"}`, p.mail)
	case "mail.clicked":
		extra = fmt.Sprintf(`,"link":"https://shop.example.com/?utm_source=newsletter&utm_medium=email&utm_campaign=w%02d&ref=%s"`, i%53, token(8))
	}
	return event(typ, tenant(), "message:"+id, fmt.Sprintf(`{"message_id":%q,"recipient":%q,"subject":%q,"timestamp":%d.%06d,"tags":[%q,%q]%s}`,
		id, p.mail, pick("Your order is on its way 📦", "Rechnung für Januar", "Réinitialisez votre mot de passe", "【重要】ご予約の確認", "Re: Re: Fwd: minutes", "Weekly digest: 3 new & 2 <changed>"), clock.Unix(), rng.IntN(1_000_000), pick("transactional", "newsletter"), pick("eu", "us", "apac"), extra))
}

func ci(i int) string {
	repo := pick("acme/storefront", "acme/ledger", "globex/fleet-api", "initech/tps")
	sha, branch := hex(40), pick("main", "release/2026.1", "fix/ünïcode-paths", "renovate/go-1.x", "feature/#482-export")
	typ := []string{"ci.run.started", "ci.run.completed", "push", "deployment.finished"}[i%4]
	switch typ {
	case "push":
		return event(typ, "acme", "repo:"+repo, fmt.Sprintf(`{"ref":"refs/heads/%s","before":%q,"after":%q,"repository":{"full_name":%q,"private":true},"commits":[{"id":%q,"message":%q,"author":{"name":%q},"added":[],"removed":[],"modified":["internal/%s.go","README.md"]}]}`,
			branch, hex(40), sha, repo, sha, pick("Fix off-by-one in pager\n\nThe last page was empty when total % size == 0.", "docs: explain <details> & anchors", "🐛 Don't retry on 4xx", "Merge branch 'main' into release"), someone().name, token(6)))
	case "deployment.finished":
		return event(typ, "acme", "env:production", fmt.Sprintf(`{"deployment":{"id":%d,"sha":%q,"environment":%q,"duration_s":%d.%d},"health":{"ok":true,"checks":[["http",200,%d],["db","ok",%d]]}}`,
			900_000+rng.IntN(99_999), sha, pick("production", "staging"), 20+rng.IntN(300), rng.IntN(10), 3+rng.IntN(90), 1+rng.IntN(9)))
	}
	conclusion, jobs := "null", []string{}
	for _, name := range []string{"lint", "unit (linux)", "unit (macos)", "e2e"} {
		jobs = append(jobs, fmt.Sprintf(`{"name":%q,"duration_ms":%d,"annotations":[]}`, name, 4000+rng.IntN(400_000)))
	}
	if typ == "ci.run.completed" {
		conclusion = `"` + pick("success", "success", "failure") + `"`
	}
	return event(typ, "acme", "repo:"+repo, fmt.Sprintf(`{"run_id":%d,"repository":%q,"branch":%q,"sha":%q,"conclusion":%s,"attempt":%d,"jobs":[%s]}`,
		7_000_000_000+rng.Int64N(999_999_999), repo, branch, sha, conclusion, 1+i%2, strings.Join(jobs, ",")))
}

func users(i int) string {
	p := someone()
	id := fmt.Sprintf("usr_%s", token(20))
	switch typ := []string{"user.created", "user.updated", "user.deleted", "session.revoked"}[i%4]; typ {
	case "user.updated":
		return event(typ, tenant(), "user:"+id, fmt.Sprintf(`{"id":%q,"changes":{"display_name":[%q,%q],"mfa":[false,true],"roles":[["viewer"],["viewer","editor"]]},"actor":{"type":"admin","id":"usr_%s"},"at":%q}`,
			id, p.name, p.name+pick(" 🌿", ", PhD", ""), token(20), clock.Format(time.RFC3339Nano)))
	case "user.deleted":
		return event(typ, tenant(), "user:"+id, fmt.Sprintf(`{"id":%q,"deleted":true,"erase_after":%q}`, id, clock.AddDate(0, 0, 30).Format(time.DateOnly)))
	case "session.revoked":
		return event(typ, tenant(), "user:"+id, fmt.Sprintf(`{"user":%q,"sessions":%d,"cause":%q,"ip":"2001:db8:%x::%x"}`, id, 1+rng.IntN(5), pick("password_changed", "admin", "suspicious_login"), rng.IntN(65536), rng.IntN(65536)))
	default:
		return event(typ, tenant(), "user:"+id, fmt.Sprintf(`{"id":%q,"email":%q,"name":%q,"address":{"city":%q,"country":%q},"email_verified":%t,"created_at":%q,"avatar_url":null,"locale":%q}`,
			id, p.mail, p.name, p.city, p.country, i%3 == 0, clock.Format(time.RFC3339Nano), strings.ToLower(p.country)))
	}
}

func shipping(i int) string {
	p := someone()
	typ := []string{"shipment.created", "shipment.in_transit", "shipment.delivered", "shipment.exception"}[i%4]
	number := fmt.Sprintf("JD%018d", rng.Int64N(1e18))
	var stops []string
	for j := range 1 + i%4 {
		stops = append(stops, fmt.Sprintf(`{"at":%q,"place":%q,"geo":[%.5f,%.5f]}`, clock.Add(time.Duration(j-6)*time.Hour).Format(time.RFC3339), pick("Leipzig Hub", "CDG — Roissy", "横浜", "Łódź sorting centre"), 48+4*rng.Float64(), 2+11*rng.Float64()))
	}
	return event(typ, tenant(), "shipment:"+number, fmt.Sprintf(`{"tracking_number":%q,"carrier":%q,"weight_kg":%.3f,"recipient":{"name":%q,"city":%q,"post_code":%q},"checkpoints":[%s],"proof":%s}`,
		number, pick("DHL", "Colissimo", "ヤマト運輸", "InPost"), 0.2+9*rng.Float64(), p.name, p.city, p.post, strings.Join(stops, ","), pick("null", `{"signed_by":"Groß","photo":true}`)))
}

func devices(i int) string {
	id := fmt.Sprintf("dev-%s", hex(8))
	var readings []string
	for range 6 {
		readings = append(readings, fmt.Sprintf(`[%d,%.3f,%s]`, clock.UnixMilli()+rng.Int64N(60_000), 18+6*rng.Float64(), pick("-0.0", "1E2", "4.20e-3", "0", "-12.5")))
	}
	return event("device.reading", "globex", "device:"+id, fmt.Sprintf(`{"device":%q,"firmware":"2.%d.0-rc.%d","unit":"°C","readings":[%s],"battery":%.2f}`, id, i, i%3, strings.Join(readings, ","), rng.Float64()))
}
