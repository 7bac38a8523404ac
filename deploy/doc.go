// Package deploy holds what runs beside Surehook: a dashboard for Grafana and
// alert rules for Prometheus. Its tests hold them against a running server and
// against promtool.
package deploy
