package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) keysCmd() *cobra.Command {
	keys := &cobra.Command{Use: "keys", Short: "API keys", RunE: group}
	var in client.KeyInput
	create := &cobra.Command{
		Use:     "create",
		Short:   "Make an API key, and print it once",
		Example: "  surehook keys create --name shop --tenant acme --permission events:write,read",
		Args:    exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			k, err := api.CreateKey(ctx, in)
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(k)
			}
			return c.out.fields("id", k.ID, "name", k.Name, "tenant", deref(k.TenantID), "partner", deref(k.PartnerID), "permissions", strings.Join(k.Permissions, ", "), "key, shown this once", k.Key)
		}),
	}
	create.Flags().StringVar(&in.Name, "name", "", "what it is for")
	create.Flags().StringVar(&in.TenantID, "tenant", "", "bind it to a tenant (default: a platform key)")
	create.Flags().StringVar(&in.PartnerID, "partner", "", "bind it to a partner: its endpoints, its tenants and theirs")
	create.Flags().StringSliceVar(&in.Permissions, "permission", nil, "events:write, events:pull, webhooks:manage, read, admin, and what event types require (required)")
	_ = create.MarkFlagRequired("permission") // it is declared above
	offer(create, "permission", "events:write", "events:pull", "webhooks:manage", "read", "admin")
	all := &cobra.Command{
		Use: "list", Short: "List keys", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			return list(c, api.Keys(ctx), listing[client.Key]{none: "no keys",
				head: []string{"ID", "NAME", "ENDS IN", "TENANT", "PARTNER", "PERMISSIONS", "CREATED", "LAST USED", "REVOKED"}, row: func(k client.Key) []cell {
					return []cell{text(k.ID), optional(printable(k.Name)), text(k.Hint), optional(deref(k.TenantID)), optional(deref(k.PartnerID)), text(strings.Join(k.Permissions, ",")),
						stamp(&k.CreatedAt), stamp(k.LastUsedAt), stamp(k.RevokedAt)}
				}})
		}),
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key; it is refused within seconds", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.RevokeKey(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "revoked")
		}),
	}
	keys.AddCommand(create, all, revoke)
	return keys
}

func (c *cmd) eventTypesCmd() *cobra.Command {
	types := &cobra.Command{Use: "event-types", Short: "The catalogue of event types", RunE: group}
	show := func(t client.EventType) error {
		if c.json {
			return c.out.value(t)
		}
		validated := ""
		if t.Validate {
			validated = "yes"
		}
		return c.out.fields("name", t.Name, "description", printable(t.Description), "example", string(t.Example), "schema", string(t.Schema), "validated", validated, "requires", t.Requires, "updated", moment(t.UpdatedAt))
	}
	get := &cobra.Command{
		Use: "get NAME", Short: "Show an event type", Args: exactly("NAME"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			t, err := api.EventType(ctx, args[0])
			if err != nil {
				return err
			}
			return show(t)
		}),
	}
	all := &cobra.Command{
		Use: "list", Short: "List event types", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			found, err := api.EventTypes(ctx)
			if err != nil {
				return err
			}
			return list(c, each(found), listing[client.EventType]{none: "no event types in the catalogue; surehook event-types put adds one, and events need none",
				head: []string{"NAME", "VALIDATED", "DESCRIPTION"}, row: func(t client.EventType) []cell {
					validated := "–"
					if t.Validate {
						validated = "yes"
					}
					return []cell{text(t.Name), text(validated), optional(printable(t.Description))}
				}})
		}),
	}
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Take an event type out of the catalogue", Args: exactly("NAME"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteEventType(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "deleted")
		}),
	}
	types.AddCommand(c.typePutCmd(show), get, all, remove)
	return types
}

func (c *cmd) typePutCmd(show func(client.EventType) error) *cobra.Command {
	var t client.EventType
	var example, schema string
	put := &cobra.Command{
		Use:   "put NAME",
		Short: "Describe an event type, or change it: what isn't given stays",
		Long: `Describe an event type, or change it: what isn't given stays, and an empty --schema
or --example takes it away. With --validate, published data that the schema refuses
is refused.`,
		Example: "  surehook event-types put order.paid --description 'An order was paid' --schema @order.json --validate",
		Args:    exactly("NAME"),
	}
	f := put.Flags()
	f.StringVar(&t.Description, "description", "", "what it tells")
	f.StringVar(&example, "example", "", "an example of its data: JSON, @FILE, or -")
	f.StringVar(&schema, "schema", "", "JSON Schema of its data: JSON, @FILE, or -")
	f.BoolVar(&t.Validate, "validate", false, "refuse data that the schema refuses")
	f.StringVar(&t.Requires, "requires", "", "permission of a key that subscribes to it or replays it")
	put.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		stored, err := stored(f, []string{"description", "example", "schema", "validate", "requires"}, func() (client.EventType, error) { return api.EventType(ctx, args[0]) })
		if err != nil {
			return err
		}
		t.Name = args[0]
		keep(f, "description", &t.Description, stored.Description)
		keep(f, "validate", &t.Validate, stored.Validate)
		keep(f, "requires", &t.Requires, stored.Requires)
		for _, x := range []struct {
			flag, from string
			to         *json.RawMessage
			stored     json.RawMessage
		}{{"example", example, &t.Example, stored.Example}, {"schema", schema, &t.Schema, stored.Schema}} {
			keep(f, x.flag, x.to, x.stored)
			if x.from == "" {
				continue
			}
			if *x.to, err = c.input(x.flag, x.from); err != nil {
				return err
			}
		}
		made, err := api.PutEventType(ctx, t)
		if err != nil {
			return err
		}
		return show(made)
	})
	return put
}
