// Package console is Surehook's web pages: the console for operators under
// /console, and the same pages, one tenant's alone, as its portal under /portal.
//
// Guarantee: a page shows and changes nothing but what the REST API would show and
// change for the session's key, since each page asks it, in process, by that key.
// What receivers, publishers and tenants wrote is shown as text and never runs.
// No page and no URL holds a secret after its first display. All pages but the live
// numbers work without JavaScript.
package console
