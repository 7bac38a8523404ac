// Package api is Surehook's REST API: everything under /v1, the OpenAPI
// document that describes it, and the health pages.
//
// It guarantees that an event answered with 202 is on the disk, that its data
// goes on byte for byte as the caller wrote it, that no answer but those of
// create and rotate holds a secret, and that a tenant's key can't tell another
// tenant's rows from rows that don't exist.
package api
