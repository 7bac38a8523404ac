package console

import "net/http"

// routes registers everything of a site. The console has all of it, the portal what
// a tenant may see.
func (s *site) routes() {
	s.mux.HandleFunc("GET "+s.base+"/static/{file}", s.static)
	s.mux.HandleFunc("GET "+s.base+"/theme.css", s.themeCSS)
	s.mux.HandleFunc("GET "+s.base+"/logo", s.logoFile)
	s.mux.HandleFunc("GET "+s.base, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.base+"/", http.StatusMovedPermanently)
	})
	s.loginRoutes()
	s.page("GET", "/{$}", (*visit).overview)
	s.page("GET", "/live", (*visit).stream)
	s.page("GET", "/chart", (*visit).chart)
	s.endpointRoutes()
	s.sentinelRoutes()
	s.sessionRoutes()
	s.eventRoutes()
	s.letterRoutes()
	s.page("GET", "/event-types", (*visit).types)
	s.page("GET", "/event-types/{name}", (*visit).eventType)
	s.replayRoutes()
	if !s.portal() {
		s.adminRoutes()
	}
	s.mux.HandleFunc(s.base+"/", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.visit(w, r)
		if err != nil {
			s.outside(w, r, err)
			return
		}
		v.fail(errNothing)
	})
}
